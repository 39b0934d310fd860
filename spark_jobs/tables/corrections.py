"""Rows taken in again from quarantine: corrected texts checked as a whole, and what a run that died has left."""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from include.lake.errors import wrong_argument
from include.landing.ingest import RowsLostError
from include.landing.parse_files import ACCEPTED, FILE, REINGESTED_ROW, WHOLE_FILE, value_column
from include.settings import RESCUED, Source


def read_corrections(path: Path) -> dict[str, str]:
    """The corrected texts by quarantine_id; SettingsError names the line that is wrong."""
    corrections: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise wrong_argument(
            str(path), f"the corrections {path} cannot be read: {error}"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            correction = json.loads(line)
            key, raw = correction["quarantine_id"], correction["raw"]
        except (ValueError, LookupError, TypeError):
            key = raw = None
        if not isinstance(key, str) or not isinstance(raw, str):
            raise wrong_argument(
                f"line {number}",
                f"{path} line {number}: expected "
                '{"quarantine_id": "...", "raw": "the row as text"}',
            )
        if key in corrections:
            raise wrong_argument(
                f"line {number}", f"{path} line {number}: {key} is corrected twice"
            )
        corrections[key] = raw
    return corrections


def corrected_rows(quarantine: DataFrame, corrections: Mapping[str, str]) -> dict[str, Any]:
    """The rows that are corrected, by their id."""
    if not corrections:
        return {}
    rows = quarantine.where(F.col("quarantine_id").isin(list(corrections)))
    return {row.quarantine_id: row for row in rows.collect()}


def refuse_corrections(corrections: Mapping[str, str], rows: Mapping[str, Any]) -> None:
    """SettingsError when a correction has no open row that it could correct."""
    for key in corrections:
        if (why := _why_not_open(key, rows.get(key))) is not None:
            raise wrong_argument(key, why)


def _why_not_open(key: str, row: Any) -> str | None:
    if row is None:
        return f"quarantine has no row {key}: nothing was taken in"
    if row.resolved_at is not None:
        return f"row {key} was taken in at {row.resolved_at} already: nothing was taken in"
    if row.row_number == WHOLE_FILE:
        return (
            f"row {key} is the whole file {row.source_file}: mend it in landing, under its name, and "
            "leave it out of the corrections"
        )
    return None


def taken(bronze: DataFrame) -> DataFrame:
    """The rows of it that were reingested."""
    return bronze.where(F.col("source_file").rlike(REINGESTED_ROW))


def accepted_rows(judged: DataFrame) -> DataFrame:
    """What bronze is to have of it, under the `source_file` that it gives to reingested rows."""
    return _tagged(judged.where(F.col("kind") == ACCEPTED))


def _tagged(accepted: DataFrame) -> DataFrame:
    return accepted.withColumn("source_file", F.concat_ws("#", "source_file", "quarantine_id"))


def refuse_changed(
    bronze: DataFrame, judged: DataFrame, open_rows: DataFrame, source: Source
) -> None:
    """RowsLostError when a mended file, or a correction, is not that any more which bronze has rows of.

    `judged`: all outcomes of now, of `open_rows` of quarantine. A row of bronze that such a file no longer
    gives would stay, one that came in its place be left out, and one that is refused now would stay open
    though bronze has it.
    """
    known, given = taken(bronze), accepted_rows(judged)
    still_open = _tagged(open_rows.where(F.col("row_number") != WHOLE_FILE))
    still_open = still_open.select("source_file", F.lit(True).alias("is_open"))
    files = judged.where(F.col("kind") == FILE).select(F.col("source_file").alias("file"))
    parsed = [F.col("event_time_us"), *(F.col(value_column(field)) for field in source.fields)]
    stored = [F.unix_micros("event_time"), *(F.col(field.name) for field in source.fields)]
    parsed.append(F.col("rescued"))
    stored.append(F.col(RESCUED) if _has_rescued(known, source) else F.lit(None).cast("string"))
    now = given.select("source_file", F.lit(True).alias("is_given"), *_values(parsed, "now"))
    was = known.select("source_file", *_values(stored, "was"))
    was = was.withColumn("file", F.regexp_replace("source_file", REINGESTED_ROW, ""))
    is_read = files.distinct().withColumn("is_read", F.lit(True))
    both = was.join(now, "source_file", "left").join(F.broadcast(is_read), "file", "left")
    both = both.join(still_open, "source_file", "left")
    pairs = [F.col(f"was_{number}") != F.col(f"now_{number}") for number in range(len(stored))]
    differs = reduce(or_, pairs)
    is_changed = F.when(F.col("is_given"), differs).otherwise(F.coalesce("is_read", "is_open"))
    changed = both.where(is_changed).select("source_file").first()
    if changed is not None:
        raise RowsLostError(
            f"a re-ingestion that died has taken {changed[0]} into bronze/{source.name}, and that file, "
            "its correction or the source's entry has changed since: rows would be lost, or come twice. "
            "Nothing was changed. Give it as it was then (bronze has the rows), re-ingest, and change it "
            "only then",
            subject=source.name,
        )


def _has_rescued(bronze: DataFrame, source: Source) -> bool:
    """Whether its column of that name is no field's: a source that rescues nothing may have one."""
    return RESCUED in bronze.columns and RESCUED not in {field.name for field in source.fields}


def _values(columns: Iterable[Column], prefix: str) -> list[Column]:
    """Each as JSON: not every type can be compared."""
    texts = (F.to_json(F.struct(column.alias("value"))) for column in columns)
    return [text.alias(f"{prefix}_{number}") for number, text in enumerate(texts)]
