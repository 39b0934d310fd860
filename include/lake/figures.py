"""What checks measure: rows of `ops/figures`, written and read here alone."""

from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from include.lake.ops import append_ops, not_ahead, read_ops
from include.lake.paths import Lake

BYTES, COUNTS = "checkpoint_bytes", ("files", "replay_versions")


class Measured(NamedTuple):
    """What one check has measured of a checkpoint."""

    at: datetime
    bytes_of: Mapping[str, int]  # by part; state/0/3 is a state partition
    files: int
    replay_versions: int

    @property
    def bytes(self) -> int:
        return sum(self.bytes_of.values())

    @property
    def partitions(self) -> Mapping[str, int]:
        """The bytes of each state partition."""
        parts = sorted(self.bytes_of, key=lambda part: (len(part), part))
        return {part: self.bytes_of[part] for part in parts if "/" in part}

    @property
    def state_bytes(self) -> int:
        """Those of the partitions, and what lies beside them."""
        return sum(self.partitions.values()) + self.bytes_of.get("state", 0)

    @property
    def skew(self) -> float | None:
        """The largest state partition, in times of the median; None where that is empty."""
        middle = median(self.partitions.values()) if self.partitions else 0
        return max(self.partitions.values()) / middle if middle else None


def record_figures(lake: Lake, subject: str, run_id: str | None, measured: Measured) -> None:
    """Append what was measured of `subject`, in one commit."""
    known = {"subject": subject, "at": measured.at, "run_id": run_id}
    of_parts = measured.bytes_of.items()
    rows = [known | {"figure": BYTES, "part": part, "value": size} for part, size in of_parts]
    rows += [known | {"figure": name, "value": getattr(measured, name)} for name in COUNTS]
    append_ops(lake, "figures", rows)


def read_measured(
    lake: Lake, subject: str | None = None, since: datetime | None = None, newest: bool = False
) -> dict[str, list[Measured]]:
    """What checks measured of each subject, or of one, in order; `newest`: the last of all alone."""
    where = {} if subject is None else {"subject": subject}
    wanted = not_ahead("at")
    if since is not None:
        wanted &= pc.field("at") >= pa.scalar(since)
    rows = read_ops(lake, "figures", where, wanted=wanted)
    if newest:
        rows = rows.filter(pc.equal(rows["at"], pc.max(rows["at"])))
    rows = rows.sort_by([("subject", "ascending"), ("at", "ascending")])
    found: dict[str, list[Measured]] = {}
    for (of, at), parts in groupby(rows.to_pylist(), itemgetter("subject", "at")):
        values = {row["part"] or row["figure"]: int(row["value"]) for row in parts}
        counts = [values.pop(name, 0) for name in COUNTS]
        found.setdefault(of, []).append(Measured(at, values, *counts))
    return found
