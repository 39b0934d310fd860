"""What stands in the way of an erasure, before anything is written."""

import pyarrow.compute as pc

from include.care.old_generations import find_old_generations
from include.care.set_aside import lying_aside
from include.checkpoint.offsets import newest_planned
from include.erase.erased_key import ErasedKey
from include.erase.found_rows import mentions
from include.fold.instants import EPOCH
from include.lake.generations import Generations, read_generations
from include.lake.how_to_mend import how_to_mend
from include.lake.open_delta import delta_table
from include.lake.paths import Lake, LakeError
from include.lake.read_tables import dataset_of
from include.landing.clock_repair import open_repair
from include.landing.erasures import Erasure
from include.landing.ingest_position import read_position
from include.landing.ingest_seal import how_tables_changed
from include.landing.landed_files import landed_files
from include.landing.older_seals import older_seals
from include.landing.parse_files import REINGESTED_ROW, WHOLE_FILE
from include.landing.refusals import shown
from include.registry import how_to_ingest, streams_of
from include.savepoints.manifest import savepoints_of
from include.settings import Source, Stream


def refuse_erasure(lake: Lake, key: ErasedKey, begun: Erasure | None) -> None:
    """LakeError when a key cannot be erased as the lake is; `begun`: an erasure of it is open."""
    source = key.source
    if aside := lying_aside(lake):
        raise LakeError(
            f"{lake.root}/{aside[0]} may have the key, as all that was set aside: "
            "move it out of the lake, or delete it"
        )
    if not lake.is_delta_table(lake.bronze(source.name)):
        raise LakeError(
            f"no bronze table at {lake.bronze(source.name)}: {_without_bronze(lake, source)}"
        )
    columns = delta_table(lake.bronze(source.name)).schema().fields
    if lacks := set(key.values) - {column.name for column in columns}:
        raise LakeError(
            f"bronze/{source.name} has no column {min(lacks)} yet: ingest {source.name} first: "
            f"{how_to_ingest(source.name)}"
        )
    _refuse_changed(lake, source.name, begun)
    position = read_position(lake, source.name)
    if position is not None and position.open is not None:
        raise LakeError(
            f"a batch of {source.name} was begun and is not done: its files may be needed. Let it be "
            "ingested first"
        )
    if begun is None and (half := _half_reingested(lake, source.name)):
        raise LakeError(
            f"a re-ingestion of {shown(min(half))} died before quarantine had what it refuses: with the "
            f"file, that would be lost. Finish it first: `./stateful reingest {source.name}`"
        )
    if open_repair(lake, source.name) is not None:
        raise LakeError(f"a repair of the clock of {source.name} is open: finish it first")
    for stream in streams_of(source.name):
        _refuse_stream(lake, stream, key, begun)


def _half_reingested(lake: Lake, source: str) -> frozenset[str]:
    """The files that quarantine has as a whole, and of which bronze has rows all the same: a
    re-ingestion died before it wrote what it refused of them."""
    is_open = (pc.field("row_number") == WHOLE_FILE) & pc.field("resolved_at").is_null()
    refused = _names_of(lake.quarantine(source), is_open)
    if not refused:
        return frozenset()
    again = pc.match_substring_regex(pc.field("source_file"), REINGESTED_ROW)
    return refused & {name.rpartition("#")[0] for name in _names_of(lake.bronze(source), again)}


def _names_of(table: str, wanted: pc.Expression) -> frozenset[str]:
    rows = dataset_of(table).to_table(columns=["source_file"], filter=wanted)
    return frozenset(rows["source_file"].to_pylist())


def _without_bronze(lake: Lake, source: Source) -> str:
    """What to do where nothing tells which rows have a key, though others may have it."""
    paths = [lake.quarantine(source.name)]
    for stream in streams_of(source.name):
        paths += [lake.table(stream.name), lake.rejected(stream.name), lake.savepoints(stream.name)]
    if not landed_files(lake, source.name) and not any(map(lake.is_delta_table, paths)):
        return "there is nothing to erase"
    return f"ingest {source.name} first: {how_to_ingest(source.name)}"


def _refuse_changed(lake: Lake, source: str, begun: Erasure | None) -> None:
    """LakeError where bronze or quarantine is another than we have made it: it may have the key."""
    if begun is not None and begun.bronze_version is None:
        return  # it is being rewritten
    if (changed := how_tables_changed(lake, source)) is None:
        return
    if older := older_seals(lake, source):
        raise LakeError(f"{older}: {how_to_mend('ops/tables')}")
    mend = "put the table back from a copy that is not older first"
    if begun is not None:
        mend += (
            "; or give the erasure up with `./stateful set-aside ops/erasures --apply`, ingest anew "
            f"after `./stateful set-aside bronze/{source} --apply`, and erase the key again"
        )
    raise LakeError(f"{changed}: {mend}")


def _refuse_stream(lake: Lake, stream: Stream, key: ErasedKey, begun: Erasure | None) -> None:
    if unknown := find_old_generations(lake, stream, EPOCH).unknown:
        raise LakeError(
            f"{lake.root}/checkpoints/{stream.name} has {', '.join(unknown)}, which ops/generations does not "
            "know, and which may hold the key: move it out of the lake, or delete it"
        )
    generations = read_generations(lake, stream.name)
    if generations.current is None and (left := _left_of(lake, generations)):
        raise LakeError(
            f"{left} is there, and may have the key, but {generations.path} has no generation of "
            f"{stream.name}, which would not be made anew: put that table back from a copy that is not "
            f"older, or make the stream anew: `./stateful reseed {stream.name} --recompute --apply`"
        )
    # Of an erasure that was cut off it is its own.
    if begun is None and generations.intent is not None:
        raise LakeError(
            f"a reseed of {stream.name} was begun and is not finished: run {stream.name} first"
        )
    if _is_initial(lake, stream, key):
        raise LakeError(
            f"the initial state of {stream.name} has the key: take it out of {lake.initial_state(stream.name)}, "
            "which is yours, and repeat"
        )


def _left_of(lake: Lake, generations: Generations) -> str | None:
    """What a stream that has run has written; None when there is nothing of it."""
    stream = generations.stream
    for path in (lake.table(stream), lake.rejected(stream)):
        if lake.is_delta_table(path) and delta_table(path).file_uris():
            return path
    if savepoints_of(lake, stream):
        return lake.savepoints(stream)
    checkpoint = lake.checkpoint(stream, generations.number)
    return None if newest_planned(lake, checkpoint) is None else checkpoint


def _is_initial(lake: Lake, stream: Stream, key: ErasedKey) -> bool:
    """Whether a stream's initial state has all of the key as words."""
    if lake.is_delta_table(lake.initial_state(stream.name)):
        told = str(dataset_of(lake.initial_state(stream.name)).to_table().to_pylist())
    else:
        path = lake.path_in_filesystem(lake.initial_state_file(stream.name))
        if not lake.filesystem.get_file_info(path).is_file:
            return False
        with lake.filesystem.open_input_stream(path) as file:
            told = file.read().decode(errors="replace")
    return all(mentions(told, text) for text in key.texts.values() if text is not None)
