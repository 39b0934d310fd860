"""Whether bronze, quarantine and the position of a source are what ingestion has made them."""

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable

from include.lake.delta_log import delta_table, open_table, told_by
from include.lake.findings import Finding
from include.lake.how_to_mend import how_to_mend
from include.lake.paths import Lake, LakeError
from include.lake.table_seal import (
    Actions,
    IsOurs,
    changed_since,
    first_change,
    read_seal,
    read_seals,
    reseal,
    seal_judged,
)
from include.landing.batch import Position
from include.landing.erasures import open_erasure
from include.landing.ingest_position import app_id, app_prefix, read_position
from include.settings import Source

# All our commits to bronze name its clock (include/landing/clock.py).
WATERMARK_KEY = "commit_watermark_us"
# What a re-ingestion's commits say of themselves, in bronze and in quarantine.
REINGESTED_KEY = "reingested"


def tables_of(source: str) -> tuple[str, str, str]:
    """Bronze, quarantine and the position of a source, below the lake."""
    return f"bronze/{source}", f"quarantine/{source}", f"ingested_files/{source}"


def ours(source: str) -> IsOurs:
    """The commits of batches, clock rows, still rows and re-ingestions of the source."""

    def is_ours(commit_info: Mapping[str, Any], actions: Actions) -> bool:
        if any(a.get("txn", {}).get("appId", "").startswith(app_prefix(source)) for a in actions):
            return True
        return bool(told_by(commit_info).keys() & {WATERMARK_KEY, REINGESTED_KEY})

    return is_ours


def how_tables_changed(lake: Lake, source: str) -> str | None:
    """What one of them lost, or got from others, in one sentence; None when nothing.

    Without a position everything begins anew, so there is nothing to hold them against.
    """
    if read_position(lake, source) is None:
        return None
    return first_change(lake, read_seals(lake, tables_of(source)), ours(source))


def refuse_changed_tables(lake: Lake, source: Source) -> Position | None:
    """The position of the source; LakeError when it and the tables are not of the same time.

    A position that is missing would take every landed file again; an older one would give new
    files to batch numbers that the tables take for written, and lose them. What an older table
    lacks would never come again.
    """
    name = source.name
    position = read_position(lake, name)
    if position is None:
        _refuse_rows_without_position(lake, name)
        return None
    _refuse_missing_table(lake, name)
    kinds = ("bronze", "quarantine")
    opened = {f"{kind}/{name}": open_table(f"{lake.root}/{kind}/{name}") for kind in kinds}
    if changed := first_change(lake, read_seals(lake, tables_of(name)), ours(name), opened):
        raise _of_other_times(name, changed)
    for kind in kinds:
        _refuse_other_times(lake, name, position, kind, opened[f"{kind}/{name}"])
    return position


def _refuse_rows_without_position(lake: Lake, source: str) -> None:
    for path in (lake.bronze(source), lake.quarantine(source)):
        if lake.is_delta_table(path) and delta_table(path).file_uris():
            position = lake.ingested_files(source)
            told = f"{path} has rows, but {position} is missing, so all would be taken in again"
            raise _of_other_times(source, told)


def _refuse_missing_table(lake: Lake, source: str) -> None:
    for path in (lake.bronze(source), lake.quarantine(source)):
        if not lake.is_delta_table(path):
            position = lake.ingested_files(source)
            told = f"{path} is missing, but not {position}, so what that has taken would not come again"
            raise _of_other_times(source, told)


def _refuse_other_times(
    lake: Lake, source: str, position: Position, table: str, opened: DeltaTable
) -> None:
    """By the numbers of batches, which also tell where no seal does."""
    path = f"{lake.root}/{table}/{source}"
    written = opened.transaction_version(app_id(source, table, position.id))
    newest = -1 if written is None else written
    if position.newest < newest:
        raise _of_other_times(
            source,
            f"{lake.ingested_files(source)} ends at batch {position.newest}, but {path} has "
            f"batch {newest}: it is an old copy, and what it reads next would be lost",
        )
    if newest < (gave := position.gave.get(table, -1)):
        told = f"batch {gave} of {source} gave rows to {path}, which ends at batch {newest}"
        raise _of_other_times(source, told)


def _of_other_times(source: str, told: str) -> LakeError:
    mend = how_to_mend(f"bronze/{source}")
    return LakeError(
        f"{told}. Nothing is ingested: {mend.words}",
        code="of_other_times",
        subject=source,
        command=mend.command,
    )


def seal_tables(lake: Lake, source: str) -> None:
    """Seal those that a commit of ours came to after their seals.

    LakeError when one of them came from others, while ours was at work: sealed, it would pass for ours
    for good.
    """
    if changed := seal_judged(lake, tables_of(source), ours(source)):
        raise _of_other_times(source, changed)


def seal_anew(lake: Lake, source: str) -> None:
    """Seal the tables of a position that begins anew: there is nothing to hold them against."""
    seal_judged(lake, tables_of(source), None)


def reseal_table(lake: Lake, source: str, table: str) -> None:
    """Seal one of them again, after a commit by a job that does not ingest."""
    reseal(lake, table, ours(source))


def how_bronze_changed(lake: Lake, source: str) -> str | None:
    """In one sentence; None when bronze is what our jobs have made it, or is not there.

    More is refused by ingestion, which alone can be put off: a seal that was put back, and that the
    log of bronze no longer reaches, is no reason to make nothing of it.
    """
    if not lake.is_delta_table(lake.bronze(source)):
        return None
    begun = open_erasure(lake, source)
    if begun is not None and begun.bronze_version is None:
        return None  # it is being rewritten, and who has to wait for that is told so
    sealed = read_seal(lake, f"bronze/{source}")
    if sealed is None:
        return None
    return changed_since(lake, sealed, ours(source), may_have_more=True)


def why_not_build(lake: Lake, source: str, who: str) -> str | None:
    """Why `who` must not go on with the rows of bronze, and what to do; None: nothing stops it."""
    if (changed := how_bronze_changed(lake, source)) is None:
        return None
    return f"{changed}, and {who} makes nothing of it: {how_to_mend(f'bronze/{source}')}"


def refuse_changed_bronze(lake: Lake, source: str, who: str) -> None:
    """LakeError when bronze is not what our jobs have made it."""
    if why := why_not_build(lake, source, who):
        raise LakeError(why, code="of_other_times", subject=f"bronze/{source}")


def bronze_finding(source: str, changed: str) -> Finding:
    """That, for people; `changed` is what `how_bronze_changed` told."""
    return Finding(
        finding="bronze_changed",
        severity="error",
        detail=f"{changed}. Until it is mended nothing is ingested, and no stream goes on with it",
        action=str(how_to_mend(f"bronze/{source}")),
    )
