"""Our local file systems do what Hadoop's do, and start no process for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from include.spark.conf import FORKLESS, conf_on

pytestmark = pytest.mark.spark

MODES = [0o644, 0o600, 0o777, 0o751, 0o1777, 0]
# Of /proc/PID/stat: the page faults of children that have ended, which each of them has.
FAULTS_OF_CHILDREN = 10 - 2


@pytest.fixture
def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def hadoop_s(jvm: Any) -> Any:
    """A file system of Hadoop's own, for comparison."""
    files = jvm.org.apache.hadoop.fs.LocalFileSystem()
    files.initialize(jvm.java.net.URI("file:///"), jvm.org.apache.hadoop.conf.Configuration())
    return files


def ours(spark: SparkSession) -> Any:
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    return spark._jvm.org.apache.hadoop.fs.FileSystem.get(conf)


def context(spark: SparkSession) -> Any:
    """Ours as Spark's checkpoints see it."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    return spark._jvm.org.apache.hadoop.fs.FileContext.getFileContext(conf)


def path_of(jvm: Any, file: Path) -> Any:
    return jvm.org.apache.hadoop.fs.Path(str(file))


def starts_processes(jvm: Any, work: Callable[[], object]) -> bool:
    stat = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat")

    def faults() -> int:
        return int(stat.read_text().rpartition(")")[2].split()[FAULTS_OF_CHILDREN])

    before = faults()
    work()
    return faults() > before


def test_a_local_job_has_them_and_one_on_a_cluster_has_not(spark):
    assert conf_on("local[4]") == FORKLESS
    assert conf_on("spark://host:7077") == conf_on("yarn") == {}
    assert ours(spark).getClass().getName() == "stateful.lake.ForklessFileSystem"
    of_context = context(spark).getDefaultFileSystem().getClass().getName()
    assert of_context == "stateful.lake.ForklessFs"


def test_no_process_is_started_for_a_file_where_hadoop_starts_one(spark, jvm, tmp_path):
    def make(files: Any, name: str) -> None:
        path = path_of(jvm, tmp_path / name)
        files.create(path, True).close()
        files.rename(path, path_of(jvm, tmp_path / f"{name}-moved"))

    assert starts_processes(jvm, lambda: make(hadoop_s(jvm), "hadoop"))
    assert not starts_processes(jvm, lambda: make(ours(spark), "ours"))


def test_a_checkpoint_s_file_is_replaced_whole_with_its_checksum(spark, jvm, tmp_path):
    """By Spark's own FileContextBasedCheckpointFileManager."""
    manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    files = manager.create(path_of(jvm, tmp_path), conf)

    def write(byte: int) -> None:
        out = files.createAtomic(path_of(jvm, tmp_path / "1.changelog"), True)
        out.write(byte)
        out.close()

    assert not starts_processes(jvm, lambda: [write(byte) for byte in b"abc"])
    assert (tmp_path / "1.changelog").read_bytes() == b"c"
    assert sorted(file.name for file in tmp_path.iterdir()) == [".1.changelog.crc", "1.changelog"]
    assert ours(spark).open(path_of(jvm, tmp_path / "1.changelog")).read() == ord("c")


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_permissions_are_those_that_hadoop_sets(spark, jvm, tmp_path, mode, is_folder):
    file = tmp_path / "file"
    file.mkdir() if is_folder else file.touch()
    of_java = jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:03o}")
    found = []
    for files in (hadoop_s(jvm), ours(spark)):
        file.chmod(0o2640)
        files.setPermission(path_of(jvm, file), of_java)
        found.append(file.stat().st_mode)
    assert found[0] == found[1]
    assert found[1] & 0o777 == mode & 0o777


@pytest.mark.parametrize("name", ["file", "folder", "link", "dangling", "missing"])
def test_what_a_name_is_they_say_as_hadoop_does(spark, jvm, tmp_path, name):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")

    def said(files: Any) -> str:
        try:
            return str(files.getFileLinkStatus(path_of(jvm, tmp_path / name)).toString())
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())

    assert said(ours(spark)) == said(hadoop_s(jvm))
    assert ("FileNotFoundException" in said(ours(spark))) is (name == "missing")
