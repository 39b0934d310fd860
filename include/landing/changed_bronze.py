"""Bronze that somebody else has changed, for whoever makes something of it.

Ingestion refuses it at its next run (ingest_seal.py). Until then a stream would fold rows that never
landed, or a reseed lack some that have; and nothing would tell, once bronze is put back.
"""

from include.lake.findings import Finding
from include.lake.paths import Lake, LakeError
from include.lake.table_changes import changed_since
from include.lake.table_seal import read_seal
from include.landing.erasures import erasures_of, open_of
from include.landing.ingest_seal import ours
from include.landing.older_seals import how_to_mend_tables, older_bronze, older_seals


def how_bronze_changed(lake: Lake, source: str) -> str | None:
    """In one sentence; None when bronze is what our jobs have made it, or is not there.

    More is refused by ingestion, which alone can be put off: a seal that was put back, and that the
    log of bronze no longer reaches, is no reason to make nothing of it.
    """
    if not lake.is_delta_table(lake.bronze(source)):
        return None
    erasures = erasures_of(lake, source)
    begun = open_of(lake, source, erasures)
    if begun is not None and begun.bronze_version is None:
        return None  # it is being rewritten, and who has to wait for that is told so
    if older := older_bronze(lake, source, erasures):
        return older
    sealed = read_seal(lake, f"bronze/{source}")
    if sealed is None:
        return None
    changed = changed_since(lake, sealed, ours(source), may_have_more=True)
    return changed and (older_seals(lake, source) or changed)


def why_not_build(lake: Lake, source: str, who: str) -> str | None:
    """Why `who` must not go on with the rows of bronze, and what to do; None: nothing stops it."""
    if (changed := how_bronze_changed(lake, source)) is None:
        return None
    return f"{changed}, and {who} makes nothing of it: {how_to_mend_tables(lake, source)}"


def refuse_changed_bronze(lake: Lake, source: str, who: str) -> None:
    """LakeError when bronze is not what our jobs have made it."""
    if why := why_not_build(lake, source, who):
        raise LakeError(why, code="of_other_times", subject=f"bronze/{source}")


def bronze_finding(lake: Lake, source: str, changed: str) -> Finding:
    """That, for people; `changed` is what `how_bronze_changed` told."""
    return Finding(
        finding="bronze_changed",
        severity="error",
        detail=f"{changed}. Until it is mended nothing is ingested, and no stream goes on with it",
        action=str(how_to_mend_tables(lake, source)),
    )
