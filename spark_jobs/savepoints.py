"""Savepoints with their manifest: written by an engine, and checked before they are used."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from include.fold.admission import EPOCH, MICROSECOND
from include.fold.definition import KeyedFold
from include.lake.paths import Lake, LakeError
from include.savepoints.contents import Contents, SavepointError
from include.savepoints.manifest import Savepoint, mark_deleted, record_savepoint, savepoints_of
from spark_jobs.engines.engine import Engine, Rows


def write_savepoint(
    engine: Engine,
    lake: Lake,
    states: Rows,
    fold: KeyedFold,
    until_us: int,
    manifest: Mapping[str, Any],
) -> str:
    """Write `states` as a savepoint, and return its id.

    `manifest` has the other columns of `ops/savepoints`; its row comes last, so a savepoint
    that was cut off does not exist. Raises SavepointError when its rows cannot be read back.
    """
    until = EPOCH + until_us * MICROSECOND
    savepoint_id = f"{until:%Y%m%dT%H%M%S%f}-{manifest['run_id'][:8]}"
    path = engine.write_savepoint_rows(lake, states, fold, savepoint_id, until_us)
    contents = engine.savepoint_contents(lake, path, savepoint_id)
    record_savepoint(
        lake,
        {
            **manifest,
            "savepoint_id": savepoint_id,
            "stream": fold.stream,
            "until": until,
            "created_at": datetime.now(UTC),
            "path": path,
            "keys": contents.keys,
            "checksum": contents.checksum,
        },
    )
    return savepoint_id


def read_savepoint(engine: Engine, lake: Lake, savepoint: Savepoint) -> Rows:
    """The states in a savepoint, once they have been checked.

    Raises SavepointError when they are not the ones that were written; what keeps the engine
    from reading them now, and may pass, as it is.
    """
    found = engine.savepoint_contents(lake, savepoint.path, savepoint.savepoint_id)
    if found != Contents(savepoint.keys, savepoint.checksum):
        raise SavepointError(
            f"savepoint {savepoint.savepoint_id} of {lake.root}/{savepoint.path} has {found.keys} "
            f"rows with checksum {found.checksum}, but ops/savepoints says {savepoint.keys} with "
            f"{savepoint.checksum}",
            subject=savepoint.savepoint_id,
        )
    return engine.savepoint_states(lake, savepoint)


def states_of_base(engine: Engine, lake: Lake, savepoint: Savepoint, whose: str) -> Rows:
    """The same, where no other savepoint can take its place: `whose` begins with it. LakeError, with
    the way out, for a damaged one."""
    try:
        return read_savepoint(engine, lake, savepoint)
    except SavepointError as error:
        raise LakeError(
            f"{error}. {whose} of {savepoint.stream} begins with it: put it back; or, begin anew",
            code="unreadable_savepoint",
            subject=savepoint.stream,
            command=f"./stateful reseed {savepoint.stream} --apply",
        ) from error


def delete_savepoints(engine: Engine, lake: Lake, savepoints: Sequence[Savepoint]) -> None:
    """Delete savepoints: first from the manifest, so that nobody begins to use them."""
    mark_deleted(lake, [savepoint.savepoint_id for savepoint in savepoints])
    for path in sorted({savepoint.path for savepoint in savepoints}):
        ids = [savepoint.savepoint_id for savepoint in savepoints if savepoint.path == path]
        engine.delete_savepoint_rows(lake, path, ids)


def savepoint_at(lake: Lake, stream: str, savepoint_id: str) -> Savepoint | None:
    """The savepoint of that id; None when it is not there."""
    found = [sp for sp in savepoints_of(lake, stream) if sp.savepoint_id == savepoint_id]
    return found[0] if found else None
