"""The contents of RocksDB and Spark's change logs, unpacked by a JVM: for `scan.files_with`."""

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from tests.amend.scan import Unpack


def unpacked_by(spark: SparkSession) -> Unpack:
    """Keys and values of SST files, and change logs without their compression."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.org.rocksdb.RocksDB.loadLibrary()
    codec = jvm.org.apache.spark.io.LZ4CompressionCodec(jvm.org.apache.spark.SparkConf())

    def entries(file: Path) -> Iterator[bytes]:
        reader = jvm.org.rocksdb.SstFileReader(jvm.org.rocksdb.Options())
        reader.open(str(file))
        entry = reader.newIterator(jvm.org.rocksdb.ReadOptions())
        entry.seekToFirst()
        while entry.isValid():
            yield bytes(entry.key())
            yield bytes(entry.value())
            entry.next()
        entry.close()
        reader.close()

    def unpack(file: Path) -> Iterator[bytes]:
        if file.suffix == ".sst":
            yield from entries(file)
        elif file.suffix == ".changelog":
            packed = jvm.java.io.FileInputStream(str(file))
            yield bytes(codec.compressedInputStream(packed).readAllBytes())
            packed.close()

    return unpack
