"""The finding on versions of somebody else's Delta table that are passed over."""

from include.lake.findings import Finding
from include.landing.batch import Batch
from include.landing.delta_parts import PASSED_OVER, part_named
from include.origins import DeltaTable
from include.settings import Source


def ignored_findings(source: Source, batch: Batch) -> list[Finding]:
    """One finding on the versions that a batch passes over; none without any."""
    if not isinstance(source.origin, DeltaTable):
        return []
    parts = sorted(part_named(name) for name in batch.files)
    versions = [part.version for part in parts if part.path == PASSED_OVER]
    if not versions:
        return []
    named, uri = ", ".join(map(str, versions)), source.origin.uri
    return [
        Finding(
            finding="versions_ignored",
            severity="warning",
            count=len(versions),
            detail=f"versions {named} of {uri} delete, update or restore rows, and were passed over "
            f"(on_change of the source): bronze/{source.name} has the rows as they were before, and "
            f"none that these versions add, be it a new one",
            action="if the change matters, take the table in anew under another source",
        )
    ]
