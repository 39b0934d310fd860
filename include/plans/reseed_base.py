"""What a reseed begins with: the newest clean savepoint before which its table can stay."""

from dataclasses import replace

from deltalake.exceptions import DeltaError

from include.coverage.judge import Coverage
from include.coverage.segments import BEGINNING_US
from include.coverage.table_coverage import TableCoverage
from include.lake.delta_log import (
    commit_hash,
    first_line,
    is_of_machine,
    lacks_newest,
    read_actions,
    unreadable_log,
)
from include.lake.how_to_mend import damaged
from include.lake.paths import Lake
from include.lake.read_tables import table_to_read
from include.plans.migrate_plan import mapped_base
from include.plans.open_stream import OpenStream
from include.plans.reseed_options import ReseedOptions
from include.savepoints.bronze_pin import BronzePin
from include.savepoints.choose_base import Base, choose_base
from include.savepoints.identity import StreamIdentity
from include.savepoints.lineage import is_mapped
from include.savepoints.manifest import savepoints_of
from include.settings import SettingsError


def choose_reseed_base(
    opened: OpenStream,
    pin: BronzePin,
    options: ReseedOptions,
    at_most_us: int,
    judged: TableCoverage,
) -> Base:
    """The base of a reseed of a table that was judged so; none after `at_most_us`.

    SettingsError when only the beginning is left, and the stream's states do not come of it.
    """
    identity, is_new = opened.identity, opened.row is None
    kept_us = _kept_before_us(identity, judged.coverage, at_most_us, is_new)
    base = _base(opened, pin, options, kept_us)
    if base is None and judged.is_unrecorded:
        # The mapping cannot be made anew, and nothing says that what is before is wrong.
        kept_us = _kept_before_us(identity, as_if_recorded(judged.coverage), at_most_us, is_new)
        base = _base(opened, pin, options, kept_us)
    if base is None:
        raise _mapping_given_up(identity.stream)
    return base


def _base(
    opened: OpenStream, pin: BronzePin, options: ReseedOptions, at_most_us: int
) -> Base | None:
    """The newest clean savepoint that is not after an instant, before which no row is replaced.

    None when only the beginning is left, and the stream's states do not come of it.
    """
    identity = opened.identity
    if options.from_state:
        return mapped_base(opened, pin, at_most_us)
    if options.recompute:
        return Base(None, identity.since_us, 0)
    base = choose_base(savepoints_of(opened.lake, opened.name), identity, pin, at_most_us)
    given_up = base.savepoint is None and is_mapped(identity.code)
    return None if given_up else base


def _kept_before_us(
    identity: StreamIdentity, coverage: Coverage, at_most_us: int, is_new: bool
) -> int:
    """Before which instant, at most that one, all rows that the table has can stay."""
    if identity.output_mode == "update":
        return at_most_us  # it is written anew as a whole
    if is_new or coverage.until_us is None:
        return BEGINNING_US
    first_wrong_us = coverage.first_wrong_us
    kept_us = coverage.until_us if first_wrong_us is None else first_wrong_us
    return min(at_most_us, kept_us)


def as_if_recorded(coverage: Coverage) -> Coverage:
    """What is wrong for another reason than that nothing was recorded yet."""
    spans = (
        replace(span, reason=None) if span.reason == "not recorded" else span
        for span in coverage.spans
    )
    return Coverage(coverage.until_us, tuple(spans), coverage.live)


def _mapping_given_up(stream: str) -> SettingsError:
    return SettingsError(
        f"the state of {stream} goes back to one that migrate_state has mapped, and no clean "
        "savepoint of it is left that the table is right before (as after late rows from before "
        f"the mapping). Make all of it anew by the code of now, which gives the mapped state up",
        code="mapped_state",
        subject=stream,
        command=f"./stateful reseed {stream} --recompute --apply",
    )


def refuse_unreadable_table(lake: Lake, stream: str) -> None:
    """LakeError when the table's log is no log: nobody can write to it, either."""
    path = lake.table(stream)
    reason = _why_unreadable(lake, path) if lake.is_delta_table(path) else None
    if reason is not None:
        raise damaged(path, unreadable_log(path, reason))


def _why_unreadable(lake: Lake, path: str) -> str | None:
    try:
        version = table_to_read(path).version()
    except DeltaError as error:
        if is_of_machine(error):
            raise
        return first_line(error)
    if commit_hash(lake, path, version) is None:
        return f"it {lacks_newest(version)}"
    # delta-rs takes the schema from the sum beside the commit, which Spark does not believe.
    if version == 0 and not read_actions(lake, path, 0):
        return "its first commit is empty, as after a power cut"
    return None
