"""Corrected texts of quarantined rows, checked as a whole before one of them is taken in."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.landing.parse_files import WHOLE_FILE
from include.settings import SettingsError


def read_corrections(path: Path) -> dict[str, str]:
    """The corrected texts by quarantine_id; SettingsError names the line that is wrong."""
    corrections: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the corrections {path} cannot be read: {error}",
            code="wrong_argument",
            subject=str(path),
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
            raise SettingsError(
                f"{path} line {number}: expected "
                '{"quarantine_id": "...", "raw": "the row as text"}',
                code="wrong_argument",
                subject=f"line {number}",
            )
        if key in corrections:
            raise SettingsError(
                f"{path} line {number}: {key} is corrected twice",
                code="wrong_argument",
                subject=f"line {number}",
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
            raise SettingsError(why, code="wrong_argument", subject=key)


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
