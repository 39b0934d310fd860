"""Delta's streaming source over bronze, as far as a stream of ours uses it."""

from collections.abc import Iterator
from functools import cached_property
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.ingest.bronze_tables import late_fields, with_late_fields
from include.lake.delta_log import open_table, read_actions
from include.lake.paths import Lake, files_of
from tests.simulator.checkpoint_log import CheckpointError, Offset


class SourceFile:
    """A file of bronze, and where the source stands after it."""

    def __init__(self, path: str, after: Offset) -> None:
        self.path = path
        self.after = after


class DeltaSource:
    """Reads bronze by commits. `end` is its newest version when the query began."""

    def __init__(self, lake: Lake, bronze: str, first_version: int | None) -> None:
        self._lake = lake
        self._bronze = bronze
        self._first_version = first_version
        self.table = open_table(bronze)
        self.end = Offset(self.table.version() + 1)

    @cached_property
    def table_id(self) -> str:
        return str(self.table.metadata().id)

    def check_same_table(self, table_id: str) -> None:
        if table_id != self.table_id:
            raise CheckpointError(
                f"the checkpoint has read table {table_id}, and {self._bronze} is {self.table_id}"
            )

    def next_end(self, start: Offset | None, one_file: bool) -> Offset | None:
        """The end of the next batch; None when there is nothing to read."""
        if start is None and self._first_version is None:
            return self.end  # a snapshot of all there is
        last = None
        for file in self._files(self._begin(start), self.end):
            last = file
            if one_file:
                break
        return None if last is None else (last.after if one_file else self.end)

    def read(self, start: Offset | None, end: Offset, columns: list[str]) -> pa.Table:
        """The rows of a batch."""
        late = late_fields(self.table, columns)
        read = sorted(set(columns).union(*(field.columns() for field in late)))
        if start is None and self._first_version is None:
            dataset = self._snapshot(end).to_pyarrow_dataset(filesystem=files_of(self._bronze))
            rows = dataset.to_table(columns=[n for n in read if n in dataset.schema.names])
            return with_late_fields(rows, late).select(columns)
        schema = pa.schema([self._schema.field(name) for name in columns])
        parts = [
            with_late_fields(pq.ParquetFile(f"{self._bronze}/{file.path}").read(columns=read), late)
            for file in self._files(self._begin(start), end)
        ]
        parts = [part.select(columns).cast(schema) for part in parts]
        return pa.concat_tables([schema.empty_table(), *parts])

    def plan_again(self, start: Offset | None, end: Offset) -> None:
        """Plan the newest batch again, as Spark does when a query starts, even if it is committed."""
        if start is None and self._first_version is None:
            self._snapshot(end)
        else:
            list(self._files(self._begin(start), end))

    def _snapshot(self, end: Offset) -> DeltaTable:
        try:
            return DeltaTable(self._bronze, version=end.version - 1)
        except DeltaError as error:
            raise CheckpointError(
                f"{self._bronze} has no version {end.version - 1} in its log any more"
            ) from error

    def _begin(self, start: Offset | None) -> Offset:
        if start is not None:
            return start
        assert self._first_version is not None
        return Offset(self._first_version)

    @cached_property
    def _schema(self) -> pa.Schema:
        schema = pa.schema(self.table.schema().to_arrow())
        return pa.schema([field.remove_metadata() for field in schema])

    def _files(self, start: Offset, end: Offset) -> Iterator[SourceFile]:
        """The files between two offsets. A commit that is gone from the log ends the query."""
        for version in range(start.version, end.version + (end.index >= 0)):
            paths = self._added(version)
            for index, path in enumerate(paths):
                if (version, index) <= start or (end.index >= 0 and (version, index) > end):
                    continue
                whole = index == len(paths) - 1
                yield SourceFile(path, Offset(version + 1) if whole else Offset(version, index))

    def _added(self, version: int) -> list[str]:
        actions = read_actions(self._lake, self._bronze, version)
        if actions is None:
            raise CheckpointError(
                f"{self._bronze} has no version {version} in its log any more: rows are lost"
            )
        for action in actions:
            if action.get("remove", {}).get("dataChange", False):
                raise CheckpointError(f"version {version} of {self._bronze} deletes rows")
        # OPTIMIZE adds files as well, which hold nothing new.
        adds = (action["add"] for action in actions if "add" in action)
        return [unquote(add["path"]) for add in adds if add["dataChange"]]
