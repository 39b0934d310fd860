"""Small runs of a source's streams that are due together: one JVM, as its start is most of their price.

Whoever comes first leads: its job drains the others after its own stream. Their own tasks wait
meanwhile, and then find themselves done; or not, and do it themselves.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from include.lake.delta_log import table_to_read
from include.lake.errors import LakeError, SettingsError
from include.lake.lease import LeaseTakenError, has_leases, hold_lease, lease_holder, wait_until
from include.lake.paths import Lake
from include.registry import loadable_streams
from include.settings import MIB, Stream
from include.stream.open_stream import OpenStream, open_stream
from include.stream.record import rows_unread

log = logging.getLogger("job")

# Runs up to these are small.
FETCHED_ROWS = 200_000
MERGED_BYTES = 256 * MIB
# Between two looks at whether the leader has ended.
LOOK_SECONDS = 1.0


def is_small(opened: OpenStream) -> bool:
    """Whether the run's batches are better written by one process than by Spark.

    By the rows that wait in bronze; and by an update table's size: a MERGE of delta-rs reads all of it.
    """
    size = _table_bytes(opened)  # in any case: a table whose log is none is not taken for small
    waiting = rows_unread(opened.lake, opened.record, opened.row, opened.source)
    is_light = opened.fold.output_mode == "append" or size <= MERGED_BYTES
    return waiting <= FETCHED_ROWS and is_light


def _table_bytes(opened: OpenStream) -> int:
    path = opened.lake.table(opened.name)
    if not opened.lake.is_delta_table(path):
        return 0
    files = pa.table(table_to_read(path).get_add_actions())
    return pc.sum(files["size_bytes"]).as_py() or 0


@contextmanager
def lead(
    lake: Lake,
    stream: Stream,
    is_due: Callable[[Stream], bool],
    jvm_of: Callable[[Stream], object],
) -> Iterator[tuple[Stream, ...]]:
    """The other streams that the run of `stream` is to take along, while the body runs.

    Those whose runs are small like its own, as all wait for all, and that would have the same JVM
    (by `jvm_of`). None where another one leads.
    """
    # A stream whose file is wrong is no matter of this one.
    of_source = [each for each in loadable_streams() if each.source == stream.source]
    others = tuple(each for each in of_source if each.name != stream.name and is_due(each))
    if not others or not has_leases(lake) or not (alike := _alike(lake, stream, others, jvm_of)):
        yield ()
        return
    with ExitStack() as held:
        try:
            names = [other.name for other in alike]
            held.enter_context(hold_lease(lake, _lease(stream), streams=names))
        except LeaseTakenError:
            alike = ()
        # The runs of some may have ended before the lease could make them wait.
        yield tuple(other for other in alike if is_due(other))


def _alike(
    lake: Lake,
    stream: Stream,
    others: tuple[Stream, ...],
    jvm_of: Callable[[Stream], object],
) -> tuple[Stream, ...]:
    own = _jvm_to_share(lake, stream, jvm_of)
    if own is None:
        return ()
    return tuple(other for other in others if _jvm_to_share(lake, other, jvm_of) == own)


def _jvm_to_share(lake: Lake, stream: Stream, jvm_of: Callable[[Stream], object]) -> object | None:
    """`jvm_of` of a run that is sure to be small; None where all is not well.

    What is wrong, and what mends it, is for the stream's own job to say.
    """
    try:
        opened = open_stream(lake, stream)
        return jvm_of(stream) if is_small(opened) else None
    except (DeltaError, LakeError, OSError, SettingsError) as error:
        log.warning("%s has its run to itself: %s", stream.name, error)
        return None


def wait_while_led(lake: Lake, stream: Stream) -> None:
    """Wait for the end of a run that takes this stream along: of its task, which has a timeout."""
    wait_until(lambda: not _is_led(lake, stream), math.inf, LOOK_SECONDS)


def _is_led(lake: Lake, stream: Stream) -> bool:
    holder = lease_holder(lake, _lease(stream))
    try:
        return holder is not None and stream.name in json.loads(holder)["streams"]
    except json.JSONDecodeError:  # its holder is about to write it
        return True


def _lease(stream: Stream) -> str:
    return f"jvm-{stream.source}"
