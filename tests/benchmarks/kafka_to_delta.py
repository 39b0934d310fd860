"""What one would write in Spark for a topic: its JSON, parsed, appended to a Delta table.

spark-submit --jars <the connector> kafka_to_delta.py SERVERS TOPIC TABLE CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SIGNAL = "device_id BIGINT, timestamp TIMESTAMP, value BIGINT"


def main() -> None:
    servers, topic, table, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    signal = F.from_json(F.col("value").cast("string"), SIGNAL).alias("signal")
    rows = messages.select(signal, "partition", "offset").select("signal.*", "partition", "offset")
    query = (
        rows.writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
