"""What was put back from before an erasure: bronze, or the seals alone, which would blame the bronze that
is right."""

from collections.abc import Sequence

from include.lake.how_to_mend import PUT_BACK, Mend, how_to_mend
from include.lake.paths import Lake
from include.lake.read_tables import table_to_read
from include.lake.table_seal import read_seal
from include.landing.erasures import Erasure, erasures_of


def older_seals(lake: Lake, source: str) -> str | None:
    """How the seals are older than an erasure of a key of the source, in one sentence; None when they are not.

    An erasure seals bronze, and then records its version.
    """
    sealed, path = read_seal(lake, f"bronze/{source}"), lake.bronze(source)
    if sealed is None or not lake.is_delta_table(path):
        return None
    table = table_to_read(path)
    known = (str(table.metadata().id), sealed["table_id"])
    erased = (
        erasure.bronze_version
        for erasure in erasures_of(lake, source)
        if erasure.bronze_version is not None and known == (erasure.bronze_id,) * 2
    )
    newest = max(erased, default=-1)
    if not sealed["version"] < newest <= table.version():
        return None
    return (
        f"{lake.ops('tables')} knows {path} at version {sealed['version']}, and is older than an erasure "
        f"of a key, which made it version {newest}: it is an older copy, or lacks its newest rows"
    )


def older_bronze(lake: Lake, source: str, erasures: Sequence[Erasure]) -> str | None:
    """How bronze is older than the newest of its erasures, in one sentence; None when it is not.

    Its seal may have been put back with it. Nothing is ingested then, so it comes to no more versions.
    """
    known = [erasure for erasure in erasures if erasure.bronze_version is not None]
    path = lake.bronze(source)
    if not known or not lake.is_delta_table(path):
        return None
    table, newest = table_to_read(path), known[-1]
    version = newest.bronze_version
    if (
        version is None
        or table.version() >= version
        or str(table.metadata().id) != newest.bronze_id
    ):
        return None
    return (
        f"{path} is at version {table.version()}, and is older than an erasure of a key "
        f"({lake.ops('erasures')}, number {newest.erasure}), which made it version {version}: it may have the key"
    )


def how_to_mend_tables(lake: Lake, source: str) -> Mend:
    """For bronze, or quarantine, that is not what we have made it: what to do. Without the seals nothing
    is lost, as without bronze."""
    if older_bronze(lake, source, erasures_of(lake, source)):
        again = f"./stateful erase {source} KEY --apply"
        return Mend(f"{PUT_BACK}; or erase the key again", again)
    older = older_seals(lake, source)
    return how_to_mend("ops/tables" if older else f"bronze/{source}")
