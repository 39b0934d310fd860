"""Erase a key: find its rows, take them out of landing, quarantine and bronze, and delete the history
of tables.

Killed anywhere, an erasure is done again as a whole, by the rows that are left. Bronze comes last, as
its rows name the landed files. The history of a table includes its log: commits and checkpoints have
predicates, and the smallest and largest values of each column.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from pyarrow import fs

from include.fold.definition import FoldKey
from include.ingest.bronze_tables import late_fields, read_quarantine, with_late_fields
from include.ingest.formats import row_of_raw
from include.ingest.landed_values import RefusedError, converter, value_at
from include.ingest.parse_files import REINGESTED_ROW
from include.lake.columns import APPEND_ONLY, arrow_type, without_comments
from include.lake.delta_log import dataset_of, delta_table
from include.lake.errors import SettingsError, wrong_argument
from include.lake.ops import SCHEMAS, despite_others
from include.lake.paths import Lake, files_of
from include.lake.table import Table, stage
from include.registry import source_named, source_names, stream_named, stream_names
from include.settings import Field, Source, Stream
from include.stream_definition import load_definition

ERASED_KEY = "ERASE_KEY"  # the environment variable of the job with the key


@dataclass(frozen=True)
class ErasedKey:
    """The values of a source's fields that name whom to erase; at least one is not null."""

    source: Source
    values: Mapping[str, pa.Scalar]

    @property
    def texts(self) -> dict[str, str | None]:
        """The values as texts, which are hashed and looked for in texts."""
        values = ((name, value.as_py()) for name, value in self.values.items())
        return {name: None if value is None else str(value) for name, value in values}

    def field(self, name: str) -> Field:
        return next(field for field in self.source.fields if field.name == name)


def erased_key(name: str, text: str) -> ErasedKey:
    """Return the key of a stream (`alice`, `["north", 7]`), or of a source (`user_id=alice`).

    Raises SettingsError for what is none.
    """
    if name in stream_names():
        stream = stream_named(name)
        fields = key_fields(stream)
        source = source_named(stream.source)
        if fields is None:
            raise SettingsError(
                f"{name} keeps its states by a function of an event: give its source and the field "
                f"that names whom to erase",
                code="wrong_argument",
                subject=name,
                command=f"./stateful erase {source.name} FIELD=VALUE",
            )
        return _typed(source, dict(zip(fields, _values(name, fields, text), strict=True)))
    if name not in source_names():
        said = f"{name} is neither a stream nor a source"
        raise SettingsError(said, code="unknown_stream", subject=name)
    field, is_given, value = text.partition("=")
    if not is_given:
        example = f"{source_named(name).fields[0].name}=VALUE"
        raise wrong_argument(name, f"{name} is a source: give FIELD=VALUE, such as {example}")
    return _typed(source_named(name), {field: value})


def key_fields(stream: Stream) -> tuple[str, ...] | None:
    """The fields of bronze that are the stream's key; None when its key is computed from events."""
    keys: FoldKey = load_definition(stream).fold.keys
    known = {field.name for field in source_named(stream.source).fields}
    return keys.names if not keys.is_derived and known >= set(keys.names) else None


def _values(name: str, fields: tuple[str, ...], text: str) -> list[str | None]:
    if len(fields) == 1:
        return [text]
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or len(found) != len(fields):
        said = f"the key of {name} is {', '.join(fields)}: give a JSON list of {len(fields)} values"
        raise wrong_argument(name, said)
    return [None if value is None else str(value) for value in found]


def _typed(source: Source, given: Mapping[str, str | None]) -> ErasedKey:
    known = {field.name: field for field in source.fields}
    for name in given:
        if name not in known:
            raise wrong_argument(
                name,
                f"source {source.name} has no field {name!r}: its fields are {', '.join(known)}",
            )
    if all(value is None for value in given.values()):
        raise wrong_argument(source.name, "a key of nulls alone names nobody")
    typed = {name: _scalar(name, known[name].type, value) for name, value in given.items()}
    return ErasedKey(source, typed)


def _scalar(name: str, type_name: str, text: str | None) -> Any:
    kind = arrow_type(type_name)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
        raise wrong_argument(name, f"{name} is {type_name}: nobody can be named by it here")
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except UnicodeEncodeError:
        # A shell hands over any bytes, and JSON has halves of letters; no row has either.
        raise wrong_argument(name, f"the value of {name} is no text in UTF-8") from None
    except pa.ArrowException:
        # Without the value, which must not be written into a log.
        raise wrong_argument(name, f"the value of {name} is no {type_name}") from None


FREE_TEXT = ("raw", "correction", "reason", "kafka_message")  # columns of quarantine


class KeyRows(NamedTuple):
    """The rows of a key in bronze and quarantine."""

    rows: int  # of bronze
    dates: tuple[str, ...]  # partitions of bronze with such rows
    refused: tuple[str, ...]  # quarantine_id of its rows
    files: tuple[str, ...]  # landed files that all of them came in


def find_rows(lake: Lake, key: ErasedKey) -> KeyRows:
    """Find the rows of a key in bronze and quarantine."""
    counts, dates, files = 0, set(), set()
    for rows, mask in rows_and_mask(lake, key, columns=("event_date", "source_file")):
        found = rows.filter(mask)
        counts += found.num_rows
        dates |= {str(date) for date in found["event_date"].unique().to_pylist()}
        files |= set(map(landed_file_of, found["source_file"].unique().to_pylist()))
    refused = {row["quarantine_id"]: row["source_file"] for row in _refused(lake, key)}
    named = files | set(refused.values())
    return KeyRows(counts, tuple(sorted(dates)), tuple(sorted(refused)), tuple(sorted(named)))


def landed_file_of(name: str) -> str:
    """The landed file of a row of bronze, by its `source_file`: FILE, or FILE#QUARANTINE_ID."""
    return re.sub(REINGESTED_ROW, "", name)


def rows_and_mask(
    lake: Lake, key: ErasedKey, date: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.Table, Any]]:
    """Parts of bronze as they are stored, each with a mask of the key's rows.

    The table is opened by the call, not by the first part: delta-rs opens none while it writes one.
    """
    path = lake.bronze(key.source.name)
    table = delta_table(path)
    late = late_fields(table, list(key.values))
    dataset = table.to_pyarrow_dataset(filesystem=files_of(path))
    wanted = None if date is None else pc.field("event_date") == pc.scalar(date).cast(pa.date32())
    read = None
    if columns is not None:
        needed = {"is_heartbeat", *columns, *key.values}.union(*(field.columns() for field in late))
        read = sorted(needed & set(dataset.schema.names))
    batches = dataset.to_batches(columns=read, filter=wanted)
    parts = (pa.Table.from_batches([batch]) for batch in batches)
    return ((rows, _mask(with_late_fields(rows, late), key)) for rows in parts)


def _mask(rows: pa.Table, key: ErasedKey) -> Any:
    is_event = pc.invert(rows["is_heartbeat"])
    return reduce(pc.and_, (_is(rows[name], value) for name, value in key.values.items()), is_event)


def _is(column: Any, value: pa.Scalar) -> Any:
    if not value.is_valid:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column.cast(value.type), value), False)


def _refused(lake: Lake, key: ErasedKey) -> Iterator[dict[str, Any]]:
    # Row 0 is a file that was refused as a whole: of its rows nothing is known.
    for batch in read_quarantine(lake, key.source.name, pc.field("row_number") > 0):
        yield from (row for row in batch.to_pylist() if _names(row, key))


def _names(row: Mapping[str, Any], key: ErasedKey) -> bool:
    """True if a refused row is the key's, or cannot be read and has all its values as words."""
    texts = {name: text for name, text in key.texts.items() if text is not None}
    file = row["source_file"]
    known = [_landed_values(row[part], file, key.source) for part in ("raw", "correction")]
    if any(values is not None and _has(values, key) for values in known):
        return True
    if known[0] is not None and all(_landed(known[0], n, key) is not None for n in texts):
        return False  # it has another key
    content = " ".join(row[part] for part in FREE_TEXT if row.get(part) is not None)
    return all(mentions(content, text) for text in texts.values())


def _landed_values(raw: str | None, name: str, source: Source) -> Mapping[str, object] | None:
    try:
        return None if raw is None else row_of_raw(name, raw, source)
    except RefusedError:
        return None


def _has(values: Mapping[str, object], key: ErasedKey) -> bool:
    return all(
        _landed(values, name, key) is None if text is None else _is_landed(values, name, key)
        for name, text in key.texts.items()
    )


def _is_landed(values: Mapping[str, object], name: str, key: ErasedKey) -> bool:
    """True if a row has the key's value, also when it is written in another way: 1.1 for 1.10."""
    value, field = _landed(values, name, key), key.field(name)
    if value is None or str(value) == key.texts[name]:
        return value is not None
    try:
        read = converter(field.type, field.times or key.source.times)(field.landed, value)
    except RefusedError:
        return False
    return bool(read == key.values[name].as_py())


def _landed(values: Mapping[str, object], name: str, key: ErasedKey) -> object:
    return value_at(key.field(name).landed)(values)


def mentions(content: str, text: str) -> bool:
    """True if `content` has `text` as a word of its own: as it is, escaped in JSON, or in Python."""
    escaped = (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text))
    spellings = {text, *(one[1:-1] for one in escaped)} - {""}
    return any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", content) for one in spellings)


def erase_rows(lake: Lake, key: ErasedKey, found: KeyRows) -> None:
    """Erase landed files, then quarantine, then bronze. Under the leases of the source and its streams."""
    _delete_landed(lake, key.source.name, found.files)
    _rewrite_quarantine(lake, key.source.name, found.refused)
    _rewrite_bronze(lake, key, found.dates)


def files_in_landing(lake: Lake, source: str, names: Sequence[str]) -> list[str]:
    info = lake.filesystem.get_file_info
    return [name for name in names if info(_landed_path(lake, source, name)).is_file]


def _delete_landed(lake: Lake, source: str, names: Sequence[str]) -> None:
    for name in files_in_landing(lake, source, names):
        lake.filesystem.delete_file(_landed_path(lake, source, name))


def _landed_path(lake: Lake, source: str, name: str) -> str:
    return lake.path_in_filesystem(f"{lake.landing(source)}/{name}")


def _rewrite_quarantine(lake: Lake, source: str, refused: Sequence[str]) -> None:
    if not refused:
        return
    path = lake.quarantine(source)
    dataset, gone = dataset_of(path), pa.array(refused, pa.string())
    # Rows that delta-rs has merged come as string_view, which Arrow cannot compare with strings.
    is_gone = pc.field("quarantine_id").cast(pa.string()).isin(gone)
    table = Table.open(lake, path)
    files = stage(path, dataset.to_batches(filter=~is_gone), _schema(table))
    table.commit(files, table.record() or {}, over=[])


def _rewrite_bronze(lake: Lake, key: ErasedKey, dates: Sequence[str]) -> None:
    """Write all other rows of each date again, in their order."""
    path = lake.bronze(key.source.name)
    if dates:
        delta_table(path).alter.set_table_properties({APPEND_ONLY: "false"})
    table = Table.open(lake, path)
    record = table.record() or {}
    for date in dates:
        files = stage(path, _others(lake, key, date), _schema(table), by="event_date")
        table.commit(files, record, over=[("event_date", "=", date)])
    if delta_table(path).metadata().configuration.get(APPEND_ONLY) == "false":
        delta_table(path).alter.set_table_properties({APPEND_ONLY: "true"})


def _schema(table: Table) -> pa.Schema:
    return without_comments(pa.schema(table.delta.schema().to_arrow()))


def _others(lake: Lake, key: ErasedKey, date: str) -> Iterator[pa.RecordBatch]:
    parts = rows_and_mask(lake, key, date)
    return chain.from_iterable(rows.filter(pc.invert(mask)).to_batches() for rows, mask in parts)


CLEANED = "stateful.historyCleaned"
VERSIONED = re.compile(r"\.?([0-9]{20})\.")
# Files of no version that are older were left by a writer that died.
DEAD_AFTER = timedelta(hours=1)


def forget_history(lake: Lake, path: str, is_alone: bool = True) -> None:
    """Delete all files of a table that its newest version does not need; `is_alone`: nobody writes."""
    # The commit that removes rows has their values: one more comes after it.
    cleaned, same = {CLEANED: datetime.now(UTC).isoformat()}, Table.open(lake, path).same_record()
    despite_others(
        lambda: delta_table(path).alter.set_table_properties(
            cleaned, raise_if_not_exists=False, commit_properties=same
        )
    )
    table = delta_table(path)
    if not is_alone:  # the files removed just now are younger than DEAD_AFTER
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    _delete_files(lake, path, is_alone)
    _clean_log(lake, path, table.version())


def _clean_log(lake: Lake, path: str, version: int) -> None:
    for info in _files(lake, f"{path}/_delta_log"):
        versioned = VERSIONED.match(info.base_name)
        is_older = versioned is not None and int(versioned[1]) < version
        # Also the checksum of the former _last_checkpoint, and parts of older checkpoints.
        if is_older or info.base_name == "._last_checkpoint.crc" or "/_sidecars/" in info.path:
            lake.filesystem.delete_file(info.path)


def _delete_files(lake: Lake, path: str, is_alone: bool) -> None:
    root, dead_before = lake.path_in_filesystem(path), datetime.now(UTC) - DEAD_AFTER
    adds = delta_table(path).get_add_actions(flatten=True)
    live = {unquote(name) for name in adds["path"].to_pylist()}
    for info in _files(lake, path):
        name = info.path.removeprefix(f"{root}/")
        is_live = name.startswith("_delta_log/") or name in live or _sums(name) in live
        if not is_live and (is_alone or info.mtime < dead_before):
            lake.filesystem.delete_file(info.path)


def _sums(name: str) -> str:
    """The name of the file that a checksum file of Hadoop belongs to."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.removeprefix('.').removesuffix('.crc')}"


def _files(lake: Lake, path: str) -> list[fs.FileInfo]:
    selector = fs.FileSelector(lake.path_in_filesystem(path), recursive=True, allow_not_found=True)
    found = lake.filesystem.get_file_info(selector)
    return [info for info in found if info.type == fs.FileType.File]


ERASED = "[erased]"
FOR_PEOPLE = ("detail", "action", "error", "examples")
SUBJECTS = ("subject", "stream")


def erase_in_ops(lake: Lake, subjects: Collection[str]) -> int:
    """Replace the texts in `ops` on these sources and streams, and return the number of cells."""
    tables = [lake.ops(name) for name in SCHEMAS if lake.is_delta_table(lake.ops(name))]
    return sum(despite_others(partial(_erase_in, path, subjects)) for path in tables)


def _erase_in(path: str, subjects: Collection[str]) -> int:
    table = delta_table(path)
    rows = table.to_pyarrow_dataset(filesystem=files_of(path)).to_table()
    about = next(rows[name] for name in SUBJECTS if name in rows.column_names)
    # The subject of a table is its path, such as bronze/signals.
    names = pc.replace_substring_regex(about, pattern=".*/", replacement="")
    is_of_them, cells = pc.is_in(names, pa.array(list(subjects), pa.string())), 0
    for name in set(FOR_PEOPLE) & set(rows.column_names):
        erased = pc.and_(is_of_them, pc.is_valid(rows[name]))
        cells += pc.sum(erased).as_py() or 0
        column = pc.if_else(erased, ERASED, rows[name]).cast(pa.string())
        rows = rows.set_column(rows.column_names.index(name), name, column)
    if cells:
        plain = pa.schema([field.remove_metadata() for field in rows.schema])
        write_deltalake(table, rows.cast(plain), mode="overwrite")
    return cells
