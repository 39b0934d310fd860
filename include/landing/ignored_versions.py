"""What is said of versions of somebody else's Delta table that are passed over."""

from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.lake.delta_log import is_of_machine
from include.lake.findings import Finding
from include.lake.paths import files_of
from include.landing.batch import Batch
from include.landing.delta_commits import Actions, LostCommitError, actions_of, bodies
from include.landing.delta_feed import CHANGE
from include.landing.delta_parts import INSERTS, PASSED_OVER, part_named
from include.origins import DeltaTable
from include.settings import Source


def ignored_findings(source: Source, batch: Batch) -> list[Finding]:
    """Of versions that a batch passes over, as the source said when it was planned."""
    if not isinstance(source.origin, DeltaTable):
        return []
    parts = sorted(part_named(name) for name in batch.files)
    versions = [part.version for part in parts if part.path in (PASSED_OVER, INSERTS)]
    if not versions:
        return []
    named, uri = ", ".join(map(str, versions)), source.origin.uri
    told = f"versions {named} of {uri} delete, update or restore rows, and were passed over"
    kept = f"bronze/{source.name} has the rows as they were before"
    if whole := [str(part.version) for part in parts if part.path == PASSED_OVER]:
        kept += f", and none that version {', '.join(whole)} adds, be it a new one"
    if others := [_passed_over(uri, part.version) for part in parts if part.path == INSERTS]:
        told += f" but for the rows that they insert: {', '.join(others)}"
    return [
        Finding(
            finding="versions_ignored",
            severity="warning",
            count=len(versions),
            detail=f"{told} (on_change of the source): {kept}",
            action="if the change matters, take the table in anew under another source",
        )
    ]


def _passed_over(uri: str, version: int) -> str:
    """What a version has beside its inserted rows, for people. Of changes that are damaged the reader
    says so, and of those of a batch that is repeated after a VACUUM nobody knows."""
    try:
        return f"{_others(uri, actions_of(uri, version))} of version {version}"
    except LostCommitError:
        return f"changes of version {version}"
    except (OSError, pa.ArrowException) as error:
        if is_of_machine(error):
            raise
        return f"changes of version {version}"


def _others(uri: str, actions: Actions) -> str:
    changes = [unquote(change["path"]) for change in bodies(actions, "cdc")]
    if not changes:
        return f"{len(bodies(actions, 'remove'))} files"
    files = files_of(uri)
    kinds = [pq.read_table(path, columns=[CHANGE], filesystem=files)[CHANGE] for path in changes]
    return f"{sum(pc.sum(pc.not_equal(kind, 'insert')).as_py() or 0 for kind in kinds)} rows"
