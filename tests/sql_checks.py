"""A stream's checks asked by DuckDB: simple conditions mean the same there as in Spark."""

import json
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from include.settings import Check, Verdict


def judge_rows(rows: pa.Table, checks: Sequence[Check]) -> list[Verdict]:
    """What each check says of them; nothing of no rows."""
    return [_verdict(rows, check) for check in checks] if rows.num_rows else []


def _verdict(rows: pa.Table, check: Check) -> Verdict:
    database = duckdb.connect()
    database.register("published", rows)
    asked = f"SELECT coalesce({check.condition}, false) FROM published"
    answers = [answer for (answer,) in database.sql(asked).fetchall()]
    if check.together is not None:
        return Verdict(check, rows.num_rows, 0 if answers == [True] else None)
    wrong = [row for row, met in zip(rows.to_pylist(), answers, strict=True) if not met]
    shown = tuple(json.dumps(row, default=str) for row in wrong[:3])
    return Verdict(check, rows.num_rows, len(wrong), shown)
