"""A stream as its file, its entry and its initial state are now, read without a JVM."""

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from include.fold.definition import KeyedFold
from include.fold.instants import MICROSECOND, micros_of
from include.lake.delta_log import first_line
from include.lake.generations import GenerationRow, Generations, read_generations
from include.lake.open_delta import delta_table
from include.lake.paths import Lake, files_of
from include.landing.initial_state import read_fingerprint
from include.landing.initial_state_file import read_document, typed_rows
from include.landing.late_fields import late_fields_of
from include.plans.code_fingerprint import code_fingerprint
from include.savepoints.identity import StreamIdentity
from include.savepoints.lineage import current_lineage
from include.settings import SettingsError, Stream
from include.stream_definition import load_definition, pinned_settings


def stream_identity(lake: Lake, stream: Stream) -> StreamIdentity:
    """What tells whether a savepoint is one of `stream`.

    Raises SettingsError when the stream's file or its initial state is wrong.
    """
    return identity_of(lake, stream, read_generations(lake, stream.name))


def identity_of(lake: Lake, stream: Stream, generations: Generations) -> StreamIdentity:
    """`stream_identity`, for whoever has read the generations."""
    fold = load_definition(stream).fold
    pinned = generations.current or {}
    initial_state = initial_fingerprint(lake, generations)
    return StreamIdentity(
        stream=stream.name,
        source=stream.source,
        output_mode=fold.output_mode,
        time_column="ingested_at" if fold.in_processing_time else "event_time",
        delay_us=stream.watermark_delay // MICROSECOND,
        code=current_lineage(
            pinned, code_fingerprint(stream, initial_state, _moved_paths(lake, stream, fold))
        ),
        state_schema=pinned_settings(stream, fold)["state_schema"],
        since_us=_since_us(lake, fold, stream.name, initial_state, pinned),
    )


def _moved_paths(lake: Lake, stream: Stream, fold: KeyedFold) -> dict[str, list[tuple[str, ...]]]:
    """Of the stream's fields, the paths that older rows are read under, where these have changed."""
    bronze = lake.bronze(stream.source)
    if not lake.is_delta_table(bronze):
        return {}
    try:
        late = late_fields_of(bronze, fold)
    except DeltaError:
        return {}  # damaged: whoever reads its rows says so
    return {field.name: paths for field in late if (paths := field.moved_paths())}


def initial_fingerprint(lake: Lake, generations: Generations) -> str | None:
    """That of the initial state, the pinned one where nothing says that it has changed."""
    pinned = generations.current or {}
    return read_fingerprint(lake, generations.stream, pinned.get("initial_state"))


def _since_us(
    lake: Lake, fold: KeyedFold, stream: str, initial_state: str | None, pinned: GenerationRow
) -> int | None:
    """`as_of` of the initial state, in microseconds since 1970; None when there is none."""
    if initial_state is None:
        return None
    # Until the first batch the initial state may still be replaced: then what was pinned is
    # the instant of another one.
    if pinned.get("initial_as_of") is not None and pinned["initial_state"] == initial_state:
        return micros_of(pinned["initial_as_of"])
    table, file = lake.initial_state(stream), lake.initial_state_file(stream)
    if lake.is_delta_table(table):
        return _as_of_us(table)
    return typed_rows(file, read_document(lake, file), fold)[0]


def _as_of_us(table: str) -> int:
    """The one instant in a table; that its rows are right is for a run of the stream to see."""
    try:
        rows = delta_table(table).to_pyarrow_table(columns=["as_of"], filesystem=files_of(table))
        instants = pc.unique(rows["as_of"].cast(pa.timestamp("us", tz="UTC"))).to_pylist()
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise SettingsError(
            f"initial state {table}: as_of cannot be read: {first_line(error)}",
            code="wrong_initial_state",
            subject=table,
        ) from error
    if len(instants) != 1 or instants[0] is None:
        shown = ", ".join(str(instant) for instant in instants[:3]) or "no rows"
        raise SettingsError(
            f"initial state {table}: as_of must be the same instant in all rows, but there are "
            f"{shown}: mend it",
            code="wrong_initial_state",
            subject=table,
        )
    return micros_of(instants[0])
