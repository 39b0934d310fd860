"""The ingest checkpoint of a source, and whether it fits the tables it feeds."""

from deltalake import DeltaTable as DeltaLog

from include.lake.paths import Lake, LakeError
from include.landing.ingest_seal import how_tables_changed
from include.landing.position import files_waiting, newest_batch, read_query_id
from include.registry import streams_of
from include.settings import Source


def app_id(lake: Lake, source: Source, table: str) -> str:
    """Names this checkpoint's writes to one table of the source, for `append_once`."""
    query_id = read_query_id(lake, source.name)
    if query_id is None:
        raise LakeError(f"{lake.ingest_checkpoint(source.name)} has no metadata file")
    return f"ingest/{source.name}/{table}/{query_id}"


def refuse_foreign_checkpoint(lake: Lake, source: Source) -> None:
    """LakeError when the checkpoint and the tables are not of the same time.

    A checkpoint that is missing would take every landed file again; an older one would
    give new files to batch numbers that the tables take for written, and lose them. What an
    older table lacks would never come again.
    """
    tables = {name: path for name, path in _tables(lake, source) if lake.is_delta_table(path)}
    checkpoint = lake.ingest_checkpoint(source.name)
    if read_query_id(lake, source.name) is None:
        filled = [path for path in tables.values() if DeltaLog(path).file_uris()]
        if filled:
            raise LakeError(
                f"{filled[0]} has rows, but the ingest checkpoint {checkpoint} is missing: every "
                "landed file would be taken in again. Put the checkpoint back from a copy; or, to "
                f"ingest {source.name} anew, move its bronze and quarantine tables away too"
            )
        return
    files_waiting(lake, source.name)  # refuses a lake that was moved
    for name, path in _tables(lake, source):
        if name not in tables:
            raise LakeError(
                f"{path} is missing, but the ingest checkpoint {checkpoint} is there: what it has "
                "taken would not come again. Put the table back; or, to ingest "
                f"{source.name} anew, move the checkpoint and its other tables away too"
            )
    if changed := how_tables_changed(lake, source.name):
        raise LakeError(_older_than_checkpoint(source.name, checkpoint, changed))
    for name, path in tables.items():
        written = DeltaLog(path).transaction_version(app_id(lake, source, name))
        begun = newest_batch(lake, source.name)
        if written is not None and begun < written:
            raise LakeError(
                f"the ingest checkpoint {checkpoint} ends at batch {begun}, but {path} has "
                f"batch {written}: it is an old copy, and what it reads next would be lost. "
                "Put back a copy that is not older than the table"
            )


def _older_than_checkpoint(source: str, checkpoint: str, changed: str) -> str:
    streams = [f"`./stateful reseed {s.name} --apply`" for s in streams_of(source)]
    reseeds = f", and then: {'; '.join(streams)}" if streams else ""
    return (
        f"{changed}. Nothing is ingested, as what {checkpoint} has taken would not come again: put "
        f"the table back from a copy that is not older; or, to ingest {source} anew from landing, "
        f"move its bronze, its quarantine and that checkpoint away, ingest{reseeds}"
    )


def _tables(lake: Lake, source: Source) -> list[tuple[str, str]]:
    name = source.name
    return [("bronze", lake.bronze(name)), ("quarantine", lake.quarantine(name))]
