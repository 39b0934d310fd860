"""How large a stream's checkpoint is, part by part, and what of it is needed.

Measuring only: `check_checkpoint` judges. It reads the names and sizes of all files from one
listing, and of each snapshot the few kilobytes that say which SST files it needs. It changes
nothing, and can be run beside a job that writes.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from include.checkpoint.checkpoint_files import (
    PARTS,
    CheckpointFile,
    Name,
    StoreId,
    left_over,
    list_checkpoint,
)
from include.checkpoint.checkpoint_size import CheckpointSize, PartSize, Position
from include.checkpoint.offsets import newest_committed, newest_planned
from include.checkpoint.operator_stores import OperatorStores, read_operators
from include.checkpoint.snapshot_contents import read_snapshots
from include.checkpoint.store_size import Fault, StoreFiles, total_bytes
from include.lake.paths import Lake, LakeError

Operators = Mapping[int, OperatorStores]
# With one of these in a checkpoint that has planned no batch, Spark starts none.
OF_BATCHES = ("offsets", "commits", "state", "state_metadata")


def measure_checkpoint(lake: Lake, stream: str, generation: int) -> CheckpointSize:
    """The size of the checkpoint of `stream`'s `generation`; of no parts when there is none.

    Raises LakeError when it cannot be listed.
    """
    checkpoint = lake.checkpoint(stream, generation)
    measured_at = datetime.now(UTC)
    # Before the listing: then all that these batches wrote is in it, whoever writes meanwhile.
    position = _position(lake, checkpoint)
    files = list_checkpoint(lake, checkpoint)
    operators = read_operators(lake, checkpoint, files)
    files = [_as_known(file, operators) for file in files]
    foreign = _paths(f for f in files if f.name.kind == "foreign" and not f.is_checksum)
    stores = [] if foreign else _stores(lake, checkpoint, files, operators, position)
    orphans = _orphans(files, stores)
    unknown = _paths(file for file in _unknown(files) if file.path not in orphans)
    missing_state = () if foreign else _missing_state(stores, position)
    faults = (Fault(o.path, o.fault) for o in operators.values() if o.fault)
    return CheckpointSize(
        stream=stream,
        generation=generation,
        checkpoint=checkpoint,
        measured_at=measured_at,
        position=position,
        parts=tuple(_parts(files, orphans)),
        stores=tuple(store.size() for store in stores),
        missing=(*_missing_logs(files, position), *missing_state),
        unreadable=(
            *_damaged_logs(lake, checkpoint, files, position),
            *_metadata_fault(lake, checkpoint, files),
            *faults,
        ),
        damaged=tuple(fault for store in stores for fault in store.damaged()),
        foreign=foreign,
        ahead=_ahead(files, position),
        left_over=tuple(sorted(orphans)),
        unknown=unknown,
        misnamed=tuple(path for path in unknown if _is_misnamed(path, stores)),
    )


def _position(lake: Lake, checkpoint: str) -> Position:
    try:
        committed = newest_committed(lake, checkpoint)
        return Position(planned=newest_planned(lake, checkpoint), committed=committed)
    except OSError as error:
        raise LakeError(
            f"the checkpoint {checkpoint} cannot be listed: {error}", code="unreadable_checkpoint"
        ) from error


def _metadata_fault(
    lake: Lake, checkpoint: str, files: Sequence[CheckpointFile]
) -> Iterator[Fault]:
    """Without the id of its query Spark starts none, with words that name no file."""
    if not any(file.path == "metadata" for file in files):
        return
    try:
        with lake.filesystem.open_input_stream(
            lake.path_in_filesystem(f"{checkpoint}/metadata")
        ) as file:
            UUID(json.loads(bytes(file.read()))["id"])
    except (ValueError, LookupError, TypeError, AttributeError):
        yield Fault("metadata", "it has no id of a query")


def _as_known(file: CheckpointFile, operators: Operators) -> CheckpointFile:
    """`file`, as unknown when its store is none of its operator's."""
    store = file.name.store
    if store is None:
        return file
    operator = operators.get(store.operator)
    if operator is None or operator.fault:
        return file
    if store.partition < operator.partitions.get(store.store, 0):
        return file
    return file._replace(name=Name("unknown", "unknown", store))


def _stores(
    lake: Lake,
    checkpoint: str,
    files: Sequence[CheckpointFile],
    operators: Operators,
    position: Position,
) -> list[StoreFiles]:
    by_store: dict[StoreId, list[CheckpointFile]] = {id: [] for id in _expected(operators)}
    for file in files:
        if file.name.part == "state" and file.name.store is not None:
            by_store.setdefault(file.name.store, []).append(file)
    contents = read_snapshots(lake, checkpoint, _paths(_snapshots(files)))
    start = position.next_version
    return [StoreFiles(id, own, contents, start) for id, own in sorted(by_store.items())]


def _expected(operators: Operators) -> Iterator[StoreId]:
    for operator, stores in operators.items():
        for store, partitions in stores.partitions.items():
            yield from (StoreId(operator, partition, store) for partition in range(partitions))


def _orphans(
    files: Sequence[CheckpointFile], stores: Sequence[StoreFiles]
) -> dict[str, CheckpointFile]:
    orphans = {file.path: file for file in left_over(files)}
    for store in stores:
        orphans |= store.orphans
    return orphans


def _unknown(files: Sequence[CheckpointFile]) -> Iterator[CheckpointFile]:
    return (file for file in files if file.name.part == "unknown" and not file.is_checksum)


def _is_misnamed(path: str, stores: Sequence[StoreFiles]) -> bool:
    """Whether Spark lists the file, takes it for a version by its ending, and fails on its name."""
    folder, _, name = path.rpartition("/")
    listed = any(store.store.folder == folder for store in stores)
    return listed and name.endswith((".zip", ".changelog"))


def _parts(files: Sequence[CheckpointFile], orphans: Collection[str]) -> Iterator[PartSize]:
    by_part = defaultdict(list)
    for file in files:
        by_part[file.name.part].append(file)
    for part in (part for part in PARTS if part in by_part):
        own_orphans = [file for file in by_part[part] if file.path in orphans]
        yield PartSize(
            part=part,
            bytes=total_bytes(by_part[part]),
            files=len(by_part[part]),
            orphan_files=len(own_orphans),
            orphan_bytes=total_bytes(own_orphans),
        )


def _needed_logs(position: Position) -> Iterator[str]:
    """The files that Spark reads before it knows where to go on."""
    planned, committed = position.planned, position.committed
    yield "metadata"
    if planned is not None:
        yield from (f"offsets/{batch}" for batch in (planned - 1, planned) if batch >= 0)
    if committed is not None:
        yield f"commits/{committed}"
        if planned is None or planned < committed:
            yield f"offsets/{committed}"


def _missing_logs(files: Sequence[CheckpointFile], position: Position) -> Iterator[str]:
    begun = position.planned is not None or position.committed is not None
    if not begun and any(f.name.part in OF_BATCHES and not f.is_checksum for f in files):
        yield "offsets/0"
    if begun:
        present = {file.path for file in files}
        yield from (path for path in _needed_logs(position) if path not in present)


def _damaged_logs(
    lake: Lake, checkpoint: str, files: Sequence[CheckpointFile], position: Position
) -> Iterator[Fault]:
    needed = set(_needed_logs(position))
    for file in files:
        if file.path not in needed:
            continue
        if not file.bytes:
            yield Fault(file.path, "it is empty: its writing was cut off")
        elif file.path != "metadata" and not _is_whole(lake, f"{checkpoint}/{file.path}"):
            yield Fault(file.path, "it is not what Spark writes: cut off, or damaged")


def _is_whole(lake: Lake, path: str) -> bool:
    """Whether it is a version, and lines of JSON, or `-` for a source without an offset."""
    with lake.filesystem.open_input_stream(lake.path_in_filesystem(path)) as file:
        content = bytes(file.read())
    try:
        version, *lines = content.decode().split("\n")
        for line in lines:
            if line != "-":
                json.loads(line)
    except ValueError:
        return False
    return version.removeprefix("v").isdecimal() and bool(lines)


def _missing_state(stores: Sequence[StoreFiles], position: Position) -> tuple[str, ...]:
    if position.next_version and not stores:
        return ("state",)
    return tuple(store.missing for store in stores if store.missing)


def _ahead(files: Sequence[CheckpointFile], position: Position) -> tuple[str, ...]:
    if position.planned is None:
        return ()  # that there is any state at all is the trouble then
    # The newest planned batch makes this version; the one after it is planned first.
    newest = position.planned + 1
    return _paths(f for f in _snapshots(files) if (f.name.number or 0) > newest)


def _snapshots(files: Sequence[CheckpointFile]) -> Iterator[CheckpointFile]:
    return (file for file in files if file.name.kind == "snapshot" and not file.is_checksum)


def _paths(files: Iterable[CheckpointFile]) -> tuple[str, ...]:
    return tuple(sorted(file.path for file in files))
