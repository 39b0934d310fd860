"""How large state, runs and tables may become, and how often what is done about it."""

from dataclasses import dataclass
from datetime import timedelta

from include.lake.errors import SettingsError

MIB = 1024**2
GIB = 1024**3


def wrong(limit: str, said: str) -> SettingsError:
    """The error for a limit, or a rule of savepoints or of the care of tables."""
    return SettingsError(f"{limit} {said}", subject=limit)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a stream's checkpoint and runs may come to before a check speaks up.

    Each is a most; None is no limit. Above `replay_versions` or `garbage_share` the state is
    compacted without asking; the others become findings for people.
    """

    checkpoint_bytes: int | None = 8 * GIB
    checkpoint_files: int | None = 20_000
    # Change logs that a partition replays at each start: two a run, so about ten runs.
    replay_versions: int | None = 20
    # The part of the state's bytes that no start and no repair needs; from 16 MiB on.
    garbage_share: float | None = 0.5
    # The largest state partition, in times of the median; from 16 MiB on.
    skew: float | None = 4.0
    growth_bytes: int | None = 1 * GIB  # of the checkpoint from one run to the next
    pending_rows: int | None = 5_000_000
    late_rows: int | None = 10_000  # of one run; any at all are in ops/findings
    uncommitted_batches: int | None = 0
    rss_bytes: int | None = 4 * GIB  # JVM and Python of one run together

    def __post_init__(self) -> None:
        for limit, value in vars(self).items():
            if value is not None and value < 0:
                raise wrong(limit, "must not be negative: None is no limit")


@dataclass(frozen=True, kw_only=True)
class SavepointRules:
    """How often a stream's state is written down as a savepoint, and for how long it is kept.

    Never deleted are those that the stream's generation begins with, and the
    cheapest base for a backfill of the oldest instant that is kept.
    """

    # Of the stream's clock: a run whose `until` has passed a multiple of it writes one.
    # None: only recomputes, reseeds and `./stateful savepoint` do.
    cadence: timedelta | None = timedelta(days=1)
    # Between two that a recompute or reseed writes on its way, at multiples of the cadence:
    # fewer events are replayed in less time than a savepoint takes.
    events_apart: int = 1_000_000
    keep: int = 60  # of the newest by `until`
    keep_for: timedelta = timedelta(days=60)  # before the newest one's `until`
    # Those of recomputes, before the newest one was written, whatever their `until`: the next
    # interval of a backfill of long ago begins with them.
    keep_recomputed: timedelta = timedelta(days=7)
    # The checkpoint of a generation that a reseed has replaced, from that on.
    keep_generations: timedelta = timedelta(days=14)

    def __post_init__(self) -> None:
        for count in ("keep", "events_apart"):
            if getattr(self, count) < 1:
                raise wrong(count, "must be at least 1")
        for span in ("cadence", "keep_for", "keep_recomputed", "keep_generations"):
            value = getattr(self, span)
            if value is not None and value < timedelta(seconds=1):
                raise wrong(span, "must be at least a second")


@dataclass(frozen=True, kw_only=True)
class TableCare:
    """When tables are optimized and vacuumed.

    How long VACUUM keeps what no version needs is a property of each table,
    `delta.deletedFileRetentionDuration`: 7 days where it is not set.
    """

    schedule: str = "20 3 * * *"
    small_file_bytes: int = 32 * MIB  # files below it are joined
    # To files of about this: at least twice as much, or some are looked at in vain every day.
    target_file_bytes: int = 128 * MIB
    # With fewer in a table that have others in their partition, no reader would notice.
    min_small_files: int = 8
    # A VACUUM lists the whole table and makes two commits: from one of these on it is worth it.
    min_garbage_files: int = 20
    min_garbage_bytes: int = 256 * MIB
    timeout: timedelta = timedelta(hours=1)  # of one task


TABLE_CARE = TableCare()
