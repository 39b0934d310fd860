"""A stream whose whole truth is in logs: each commit of ours carries its record, and `verify` compares the logs.

Real are the tables: bronze, the stream's table and its dead letters, by deltalake. Modelled are Spark's checkpoint
(files as Spark writes them, and the state) and the fold: a total per key; calls that fail are dead letters; a late
row counts in restated and rebuilt rows alone. `record_on_real_logs.py` tries it.
"""

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

Record = dict[str, Any]
Row = dict[str, Any]
Folded = tuple[list[Row], list[Row]]  # outputs and dead letters
Op = tuple[
    Any, ...
]  # what a write did: its kind, its bounds, how many of bronze's batches it has read
Tick = Callable[[str, Op | None], None]
INT, TEXT = pa.int64(), pa.string()
SCHEMAS = {
    "table": pa.schema({"key": TEXT, "total": INT, "emitted_at": INT}),
    "bronze": pa.schema({"id": INT, "key": TEXT, "t": INT, "late": pa.bool_()}),
    "letters": pa.schema({"id": INT, "key": TEXT, "emitted_at": INT}),
}
PARTS = ("table", "checkpoint", "bronze", "letters")


class OfOtherTimesError(Exception):
    """The parts are not of one time; `rebuild` mends it."""


class Log:
    """A table's log, read from its JSON; what was read is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        stems = [file.stem for file in (path / "_delta_log").glob("*.json")]
        self.versions = sorted(int(stem) for stem in stems if stem.isdecimal())
        self.version = self.versions[-1] if self.versions else -1
        self._actions: dict[int, list[Row]] = {}

    def actions(self, version: int) -> list[Row]:
        if version not in self._actions:
            text = (self.path / "_delta_log" / f"{version:020}.json").read_text()
            self._actions[version] = [json.loads(line) for line in text.splitlines() if line]
        return self._actions[version]

    def record_of(self, version: int) -> Record | None:
        """The record of one commit; None of somebody else's."""
        infos = [action["commitInfo"] for action in self.actions(version) if "commitInfo" in action]
        said = infos[0].get("userMetadata") if infos else None
        try:
            record: Record | None = json.loads(said or "{}").get("stateful")
        except (ValueError, AttributeError):
            return None
        return record

    def record_at(self, version: int) -> Record | None:
        """The newest record at or before `version`, of the commits that are left."""
        older = (self.record_of(v) for v in reversed(self.versions) if v <= version)
        return next((record for record in older if record is not None), None)

    @cached_property
    def record(self) -> Record | None:
        return self.record_at(self.version)

    @cached_property
    def trouble(self) -> str | None:
        """Why the newest record does not tell what the table is; None when it does."""
        for version in reversed(self.versions):
            if self.record_of(version) is not None:
                return None
            if problem := self._others_change(version):
                return f"commit {version} {problem}"
        return "no commit has a record" if self.versions else None

    def _others_change(self, version: int) -> str | None:
        actions = self.actions(version)
        files = [a[kind] for a in actions for kind in ("add", "remove", "cdc") if kind in a]
        if not actions or any(file.get("dataChange") for file in files):
            return "changes data and is not ours" if actions else "is empty"
        for metadata in (action["metaData"] for action in actions if "metaData" in action):
            names = {field["name"] for field in json.loads(metadata["schemaString"])["fields"]}
            if not names >= set(SCHEMAS[self.path.name].names):
                return "takes columns away"
        return None


class Parts(NamedTuple):
    """What `verify` compares, and each check of it. n is the batch of the table's record."""

    table: Log
    checkpoint: Path
    bronze: Log
    letters: Log

    @property
    def record(self) -> Record:
        return self.table.record or {}

    def folder(self) -> Path:
        return self.checkpoint / str(self.record["generation"])

    def plan(self, batch: int) -> Record:
        """A batch as it was planned: up to which version of bronze, and a digest of all of it.

        That has when it was planned, so no other life's plan has the same.
        """
        file = self.folder() / "offsets" / str(batch)
        if not file.exists():
            return {"version": -1, "digest": None}
        text = file.read_text()
        until = json.loads(text.splitlines()[2])["reservoirVersion"] - 1
        return {"version": until, "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def others(self) -> bool:
        """Nobody else has changed a table since its newest record."""
        return not (self.table.trouble or self.bronze.trouble or self.letters.trouble)

    def generation(self) -> bool:
        """No checkpoint is of a newer generation than the table."""
        return newest(self.checkpoint) <= int(self.record["generation"])

    def batch(self) -> bool:
        """The checkpoint has finished n, or has planned it and finished n - 1."""
        planned, finished = newest(self.folder() / "offsets"), newest(self.folder() / "commits")
        n: int = self.record["batch"]
        return (finished == n and planned in (n, n + 1)) or (finished == n - 1 and planned == n)

    def plans(self) -> bool:
        """Batch n is the same one in the checkpoint."""
        n: int = self.record["batch"]
        return n < 0 or bool(self.plan(n)["digest"] == self.record["plan"])

    def plans_by_version(self) -> bool:
        """The same, if it were told by the version of bronze alone."""
        n: int = self.record["batch"]
        return n < 0 or bool(self.plan(n)["version"] == self.record["bronze"]["version"])

    def behind(self) -> bool:
        """Bronze has all that was read, or is planned to be."""
        planned = self.plan(newest(self.folder() / "offsets"))["version"]
        return self.bronze.version >= int(max(self.record["bronze"]["version"], planned))

    def commit(self) -> bool:
        """What bronze has at the version that was read is what was read."""
        read = self.record["bronze"]
        if read["version"] < 0 or (self.bronze.record or {}).get("commit") == read["commit"]:
            return True
        found = (self.bronze.record_at(read["version"]) or {}).get("commit")
        return bool(found == read["commit"])

    def dead_letters(self) -> bool:
        """They are those of the record, or the ones before it, and what is to be added is staged."""
        wanted, found = self.record["letters"], (self.letters.record or {}).get("commit")
        staged = all((self.letters.path / add["path"]).exists() for add in wanted["adds"])
        return bool(found == wanted["commit"] or (found == wanted["after"] and staged))


CHECKS = ("others", "generation", "batch", "plans", "behind", "commit", "dead_letters")


def verify(parts: Parts, checks: Sequence[str] = CHECKS) -> str | None:
    """The check by which the parts are of other times; None when they go together."""
    if parts.table.record is None:
        begun = parts.table.versions or parts.letters.versions or newest(parts.checkpoint) >= 0
        return "no record" if begun else None
    return next((check for check in checks if not getattr(parts, check)()), None)


class Lake:
    """A stream and its source, and what is done to them. `tick` is called after each write."""

    def __init__(self, root: Path, tick: Tick, checks: Sequence[str] = CHECKS) -> None:
        self.root, self.tick, self.checks = root, tick, checks

    def parts(self) -> Parts:
        log, root = Log, self.root
        return Parts(
            log(root / "table"), root / "checkpoint", log(root / "bronze"), log(root / "letters")
        )

    def verified(self) -> Parts:
        """The parts, once they go together; a new table is begun, dead letters are made up for."""
        parts = self.parts()
        if problem := verify(parts, self.checks):
            raise OfOtherTimesError(problem)
        if parts.table.record is None:
            letters: Record = {"commit": None, "after": None, "adds": [], "replace": False}
            read = {"version": -1, "commit": None}
            begun = {"generation": 1, "batch": -1, "bronze": read, "letters": letters}
            self._create(
                "table", begun | {"operation": "begin", "savepoint": None, "intervals": []}
            )
            self.tick("begin", None)
        self._write_letters(self.parts().record)
        return self.parts()

    def ingest(self, rows: list[Row]) -> None:
        before = Log(self.root / "bronze").record or {"batch": -1, "watermark": -1, "commit": None}
        self._create("bronze", before)
        rows = [{**row, "late": row["t"] <= before["watermark"]} for row in rows]
        after = max(before["watermark"], *(row["t"] for row in rows))
        record = {"batch": before["batch"] + 1, "watermark": after, "commit": uuid.uuid4().hex}
        self._commit("bronze", record, [self._stage("bronze", rows)])
        self.tick("ingest", ("ingest", rows))

    def drain(self) -> None:
        """Batches as Spark makes them: planned, folded, written to the table, finished."""
        parts = self.verified()
        while (n := newest(parts.folder() / "commits") + 1) >= 0:
            seed, folder = parts.record["savepoint"], parts.folder()
            start = parts.plan(n - 1)["version"] if n else seed["version"] if seed else -1
            if newest(folder / "offsets") < n:
                if not rows_after(parts.bronze, start, parts.bronze.version):
                    return
                write_plan(folder, n, parts.bronze.version)
                self.tick("plan", None)
            plan, state = parts.plan(n), self._state(folder, n, seed)
            rows = rows_after(parts.bronze, start, plan["version"])
            folded = fold(state, [row for row in rows if not row["late"]])
            if parts.record["batch"] < n:
                self._commit_batch(parts, n, plan, folded)
            write(folder / "state" / str(n + 1), json.dumps(state))
            write(folder / "commits" / str(n), 'v1\n{"nextBatchWatermarkMs":0}')
            self.tick("finish", None)
            parts = self.parts()

    def _commit_batch(self, parts: Parts, n: int, plan: Record, folded: Folded) -> None:
        query = json.loads((parts.folder() / "metadata").read_text())["id"]
        record = self._record(parts, "batch", plan["version"], folded[1])
        record |= {"batch": n, "plan": plan["digest"], "query": query}
        before = max((until for _, until, _ in record["intervals"]), default=0)
        until = max((row["emitted_at"] + 1 for part in folded for row in part), default=before)
        record["intervals"] = paint(record["intervals"], before, until, plan["version"])
        txn = (self.app_id(record), n)
        self._commit("table", record, [self._stage("table", folded[0])], txn=txn)
        self.tick("table", ("live", batches_at(parts.bronze, plan["version"])))
        self._write_letters(record)

    def app_id(self, record: Record) -> str:
        """By what a table knows the batches of one checkpoint: by an id that is never used again."""
        return f"stream/{record['query']}"

    def rebuild(self, version: int | None = None) -> None:
        """The one mend, and the way back to an earlier version of bronze: one commit is the switch."""
        parts, state = self.parts(), dict[str, int]()
        end = parts.bronze.version if version is None else version
        folded = fold(state, rows_after(parts.bronze, -1, end))
        savepoint: Record = {"id": uuid.uuid4().hex, "version": end}
        write(self.root / "savepoints" / savepoint["id"], json.dumps(state))
        self.tick("savepoint", None)
        generation = max(parts.record.get("generation", 0), newest(parts.checkpoint)) + 1
        record = self._record(parts, "rebuild", end, folded[1], replace=True)
        record |= {"generation": generation, "batch": -1, "plan": None, "savepoint": savepoint}
        until = max((row["emitted_at"] + 1 for part in folded for row in part), default=0)
        record["intervals"] = [[0, until, end]]
        self._replace(record, folded[0], ("rebuild", batches_at(parts.bronze, end)))

    def restate(self, first: int, until: int) -> None:
        """An interval's rows made anew of all that bronze has, late rows too; the state stays."""
        parts = self.verified()
        end = parts.bronze.version
        made = fold({}, rows_after(parts.bronze, -1, end))
        outputs, letters = repainted((self.rows("table"), self.rows("letters")), made, first, until)
        record = self._record(parts, "restate", end, letters, replace=True)
        record["bronze"] = parts.record["bronze"]
        record["intervals"] = paint(record["intervals"], first, until, end)
        self._replace(record, outputs, ("restate", first, until, batches_at(parts.bronze, end)))

    def restamp(self) -> None:
        """Maintenance: the newest record once more, in a commit of its own."""
        self._commit("table", self.verified().record | {"operation": "maintain"}, [])

    def rows(self, part: str) -> list[Row]:
        path = self.root / part
        return read_files(DeltaTable(str(path)).file_uris()) if Log(path).versions else []

    def _record(
        self, parts: Parts, operation: str, end: int, letters: list[Row], replace: bool = False
    ) -> Record:
        """The record of a commit that is computed from bronze's version `end`."""
        read = {"version": end, "commit": (parts.bronze.record_at(end) or {}).get("commit")}
        record = {"intervals": [], **parts.record, "operation": operation, "bronze": read}
        if letters or replace:
            staged, after = (
                self._stage("letters", letters),
                (parts.letters.record or {}).get("commit"),
            )
            adds = [{"path": staged.path, "size": staged.size, "rows": len(letters)}]
            ids = {"commit": uuid.uuid4().hex, "after": after}
            record["letters"] = {**ids, "adds": adds, "replace": replace}
        return record

    def _replace(self, record: Record, outputs: list[Row], op: Op) -> None:
        """One commit takes all files away, and adds what replaces them."""
        self._create("table", record | {"operation": "begin"})
        self._commit("table", record, [self._stage("table", outputs)], replace=True)
        self.tick("table", op)
        self._write_letters(record)

    def _write_letters(self, record: Record) -> None:
        """The dead letters that the table's record has staged, unless they are there."""
        wanted = record["letters"]
        if wanted["commit"] == (Log(self.root / "letters").record or {}).get("commit"):
            return
        self._create("letters", {"commit": None})
        adds = [add_of(**add) for add in wanted["adds"]]
        self._commit("letters", {"commit": wanted["commit"]}, adds, replace=wanted["replace"])
        self.tick("letters", None)

    def _state(self, folder: Path, n: int, seed: Record | None) -> dict[str, int]:
        """The state before batch n; a savepoint that is lost is made again."""
        saved = (
            folder / "state" / str(n)
            if n
            else self.root / "savepoints" / str((seed or {"id": ""})["id"])
        )
        if saved.is_file():
            return dict(json.loads(saved.read_text()))
        state: dict[str, int] = {}
        if seed:
            fold(state, rows_after(Log(self.root / "bronze"), -1, seed["version"]))
        return state

    def _stage(self, part: str, rows: list[Row]) -> AddAction:
        (self.root / part).mkdir(parents=True, exist_ok=True)
        file = self.root / part / f"part-{uuid.uuid4()}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[part]), file)
        return add_of(file.name, file.stat().st_size, len(rows))

    def _create(self, part: str, record: Record) -> None:
        if not Log(self.root / part).versions:
            said = properties(record)
            DeltaTable.create(str(self.root / part), SCHEMAS[part], commit_properties=said)

    def _commit(
        self, part: str, record: Record, adds: list[AddAction], replace: bool = False, txn: Op = ()
    ) -> None:
        table = DeltaTable(str(self.root / part))
        done = table.transaction_version(txn[0]) if txn else None
        if done is not None and done >= txn[1]:
            return  # as Spark's writer does, and says nothing
        said, have = properties(record, txn), set(table.schema().to_arrow().names)
        if replace and not have >= set(SCHEMAS[part].names):  # it also takes all files away
            mode, schema, removes = "overwrite", Schema.from_arrow(SCHEMAS[part]), []
        else:
            gone = pa.table(table.get_add_actions(flatten=True)).to_pylist() if replace else []
            removes = [RemoveAction(f["path"], True, now_ms(), f["size_bytes"], {}) for f in gone]
            mode, schema = "append", table.schema()
        table.create_write_transaction([*adds, *removes], mode, schema, commit_properties=said)


def properties(record: Record, txn: Op = ()) -> CommitProperties:
    said = {"userMetadata": json.dumps({"stateful": record})}
    txns = [Transaction(txn[0], txn[1], now_ms())] if txn else []
    return CommitProperties(custom_metadata=said, max_commit_retries=0, app_transactions=txns)


def add_of(path: str, size: int, rows: int) -> AddAction:
    return AddAction(path, size, {}, now_ms(), True, json.dumps({"numRecords": rows}))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def newest(folder: Path) -> int:
    """The highest of the numbers that files and folders in `folder` are named by."""
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


def write(file: Path, text: str) -> None:
    """A new file in place of the old one, whose other links stay as they are."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_name(f".{file.name}").write_text(text)
    file.with_name(f".{file.name}").rename(file)


def write_plan(folder: Path, n: int, version: int) -> None:
    """What Spark writes before a batch, and in its first run."""
    if not (folder / "metadata").exists():
        write(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    planned = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": now_ms()})
    source = json.dumps({"sourceVersion": 1, "reservoirVersion": version + 1, "index": -1})
    write(folder / "offsets" / str(n), f"v1\n{planned}\n{source}")


def read_files(files: list[str]) -> list[Row]:
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def rows_after(bronze: Log, start: int, end: int) -> list[Row]:
    """The rows of commits after `start`, up to `end`: by their files, or all of a version."""
    if start < 0 <= end:
        return read_files(DeltaTable(str(bronze.path), version=end).file_uris())
    actions = (a for v in bronze.versions if start < v <= end for a in bronze.actions(v))
    adds = (action["add"] for action in actions if "add" in action)
    return read_files([str(bronze.path / add["path"]) for add in adds if add["dataChange"]])


def batches_at(bronze: Log, version: int) -> int:
    return int((bronze.record_at(version) or {"batch": -1})["batch"]) + 1


def paint(intervals: list[list[int]], first: int, until: int, version: int) -> list[list[int]]:
    """Disjoint [from, until, version of bronze], after one more of them."""
    left = [[a, min(b, first), v] for a, b, v in intervals if a < first]
    right = [[max(a, until), b, v] for a, b, v in intervals if b > until]
    return [*left, [first, until, version], *right]


def repainted(old: Folded, new: Folded, first: int, until: int) -> Folded:
    """The rows of `old`, but those of an interval from `new`."""
    outside, inside = (
        [[row for row in rows if (first <= row["emitted_at"] < until) is kept] for rows in folded]
        for folded, kept in ((old, False), (new, True))
    )
    return outside[0] + inside[0], outside[1] + inside[1]


def fold(state: dict[str, int], rows: list[Row]) -> Folded:
    """The outputs and the dead letters of the rows; `state` is moved on."""
    outputs, letters = [], []
    for row in sorted(rows, key=lambda row: (row["t"], row["id"])):
        at = {"key": row["key"], "emitted_at": row["t"]}
        if row["id"] % 5 == 0:
            letters.append({"id": row["id"], **at})
            continue
        state[row["key"]] = state.get(row["key"], 0) + row["id"]
        outputs.append({"total": state[row["key"]], **at})
    return outputs, letters


class Seen:
    """What was done to a lake, kept outside it, and what plain Python makes of that."""

    def __init__(self, batches: tuple[list[Row], ...] = (), ops: tuple[Op, ...] = ()) -> None:
        self.batches, self.ops = batches, ops

    def tick(self, name: str, op: Op | None) -> None:
        if op and op[0] == "ingest":
            self.batches += (op[1],)
        elif op:
            self.ops += (op,)

    def expected(self) -> Folded:
        state: dict[str, int] = {}
        made: Folded = ([], [])
        read = 0
        for kind, *bounds, until in self.ops:
            rows = [row for batch in self.batches[:until] for row in batch]
            if kind == "restate":
                made = repainted(made, fold({}, rows), bounds[0], bounds[1])
                continue
            if kind == "rebuild":
                state, made, read = {}, ([], []), 0
            else:
                rows = [row for b in self.batches[read:until] for row in b if not row["late"]]
            outputs, letters = fold(state, rows)
            made, read = (made[0] + outputs, made[1] + letters), until
        return made


def counted(rows: list[Row]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)
