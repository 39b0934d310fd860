"""A running count per user by PyFlink over RocksDB, over the benchmark's files.

Run by a Python that has apache-flink (`bench.py` makes one), with BENCH_FILES and BENCH_CHECKPOINT;
PYFLINK, a JSON object, changes settings. Flink has no batches: the steady ones' seconds are what
all files took longer than the first two, shared out. It reads the users as lines of text, which
costs it less than Parquet would. Prints what contenders print.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from pyflink.common import Configuration, Encoder, Types, WatermarkStrategy
from pyflink.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from pyflink.datastream.state import ValueStateDescriptor

FOLDER = Path(os.environ["BENCH_CHECKPOINT"]).resolve()
FIRST = 2  # files of the shorter run
SETTINGS = {
    "parallelism.default": "2",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.dir": f"file://{FOLDER}/checkpoints",
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
    # At a bundle's end each key that it changed is a call to the JVM: so they are long.
    "python.fn-execution.bundle.size": "1000000",
    "python.fn-execution.bundle.time": "10000",
    "python.state.cache-size": "200000",
    "taskmanager.memory.managed.size": "1g",
    **json.loads(os.environ.get("PYFLINK", "{}")),
}


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        total = (self.total.value() or 0) + 1
        self.total.update(total)
        yield f"{value},{total}"


def seconds_of(texts: list[Path]) -> float:
    """Of Flink's own job; what came out is in `out`."""
    shutil.rmtree(FOLDER / "out", ignore_errors=True)
    configuration = Configuration()
    for name, value in SETTINGS.items():
        configuration.set_string(name, value)
    flink = StreamExecutionEnvironment.get_execution_environment(configuration)
    read = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), *(str(text) for text in texts)
    )
    users = flink.from_source(read.build(), WatermarkStrategy.no_watermarks(), "users")
    counted = users.key_by(lambda user: user, key_type=Types.STRING())
    sink = FileSink.for_row_format(f"{FOLDER}/out", Encoder.simple_string_encoder()).build()
    counted.process(Count(), output_type=Types.STRING()).sink_to(sink)
    return float(flink.execute("counts").get_net_runtime()) / 1000


def as_text(file: Path) -> Path:
    path = FOLDER / f"{file.stem}.txt"
    users = pq.read_table(file, columns=["user_id"])["user_id"].to_pylist()
    path.write_text("".join(f"{user}\n" for user in users))
    return path


def result() -> int:
    """The users' highest counts, added up."""
    highest: dict[str, int] = {}
    for part in (FOLDER / "out").rglob("*part-*"):
        for line in part.read_text().splitlines():
            user, _, total = line.rpartition(",")
            highest[user] = max(int(total), highest.get(user, 0))
    return sum(highest.values())


def main() -> None:
    texts = [as_text(file) for file in sorted(Path(os.environ["BENCH_FILES"]).glob("*.parquet"))]
    few, everything = seconds_of(texts[:FIRST]), seconds_of(texts)
    steady = (everything - few) / (len(texts) - FIRST)
    seconds = [few / FIRST] * FIRST + [steady] * (len(texts) - FIRST)
    told = {"seconds": seconds, "state_files_bytes": [], "result": result(), "waiting": 0}
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main()
