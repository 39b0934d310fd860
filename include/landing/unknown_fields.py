"""Fields that landed and that no source knows, told once each."""

from collections.abc import Iterator, Mapping

from include.lake.findings import Finding
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.refusals import shown
from include.settings import Source

FINDING = "unknown_field"
NAMED = 20  # of one run; a file can have any number


def new_fields(lake: Lake, source: Source, unknown: Mapping[str, int]) -> list[Finding]:
    """A finding for each field of `unknown` (name to rows) that none has been made for."""
    if not unknown:
        return []
    told = read_ops(lake, "findings", {"finding": FINDING, "subject": source.name})
    details = set(told["detail"].to_pylist())
    return list(_findings(source, unknown, details))


def _findings(source: Source, unknown: Mapping[str, int], told: set[str]) -> Iterator[Finding]:
    new = [name for name in sorted(unknown) if _detail(source, name) not in told]
    for name in new[:NAMED]:
        yield Finding(
            finding=FINDING,
            severity="info",
            count=unknown[name],
            detail=_detail(source, name),
            action=f"declare it as a field of {source.name}, with required=False, and streams read it "
            "of these rows, too; or pass it over with ignored=",
        )


def _detail(source: Source, name: str) -> str:
    return (
        f"{shown(name)} landed for {source.name}, which has no such field: it is kept in the column "
        f"rescued of bronze/{source.name}"
    )
