"""Spark says of a page whose bits have turned that it is not what was written."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("is_vectorized", ["true", "false"])
def test_no_value_of_a_flipped_page_is_read(spark, tmp_path, is_vectorized):
    path = tmp_path / "part.parquet"
    numbers = pa.table({"n": pa.array(range(1_000), pa.int64())})
    pq.write_table(
        numbers, path, write_page_checksum=True, compression="none", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    content[content.index((500).to_bytes(8, "little"))] ^= 1
    path.write_bytes(content)
    reader = "spark.sql.parquet.enableVectorizedReader"
    spark.conf.set(reader, is_vectorized)
    try:
        with pytest.raises(Py4JJavaError):
            spark.read.parquet(str(path)).agg({"n": "sum"}).collect()
    finally:
        spark.conf.unset(reader)
