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
from include.registry import streams_of
from include.savepoints.manifest import savepoints_of
from include.settings import Source, Stream


def refuse_erasure(lake: Lake, key: ErasedKey, begun: Erasure | None) -> None:
    """LakeError when a key cannot be erased as the lake is; `begun`: an erasure of it is open."""
    source = key.source
    if aside := lying_aside(lake):
        raise LakeError(
            f"{lake.root}/{aside[0]} may have the key, as all that was set aside: "
            "move it out of the lake, or delete it",
            code="not_erasable",
            subject=aside[0],
        )
    bronze = f"bronze/{source.name}"
    if not lake.is_delta_table(lake.bronze(source.name)):
        is_there = _has_anything(lake, source)
        raise LakeError(
            f"there is no {bronze}: {'ingest first' if is_there else 'nor anything to erase'}",
            code="nothing_there",
            subject=bronze,
            command=_how_to_ingest(source) if is_there else None,
        )
    columns = delta_table(lake.bronze(source.name)).schema().fields
    if lacks := set(key.values) - {column.name for column in columns}:
        raise LakeError(
            f"{bronze} has no column {min(lacks)} yet: ingest first",
            code="nothing_there",
            subject=bronze,
            command=_how_to_ingest(source),
        )
    _refuse_changed(lake, source.name, begun)
    position = read_position(lake, source.name)
    if position is not None and position.open is not None:
        raise LakeError(
            f"a batch of {source.name} was begun and is not done: its files may be needed. Let it be "
            "ingested first",
            code="not_erasable",
            subject=source.name,
        )
    if begun is None and (half := _half_reingested(lake, source.name)):
        raise LakeError(
            f"a re-ingestion of {shown(min(half))} died before quarantine had what it refuses: with the "
            f"file, that would be lost. Finish it first",
            code="not_erasable",
            subject=source.name,
            command=f"./stateful reingest {source.name}",
        )
    if open_repair(lake, source.name) is not None:
        raise LakeError(
            f"a repair of the clock of {source.name} is open: finish it first",
            code="unfinished_repair",
            subject=source.name,
        )
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


def _has_anything(lake: Lake, source: Source) -> bool:
    """Whether something may have the key, though no bronze tells which rows do."""
    paths = [lake.quarantine(source.name)]
    for stream in streams_of(source.name):
        paths += [lake.table(stream.name), lake.rejected(stream.name), lake.savepoints(stream.name)]
    return bool(landed_files(lake, source.name)) or any(map(lake.is_delta_table, paths))


def _how_to_ingest(source: Source) -> str | None:
    return next((f"./stateful stream {each.name}" for each in streams_of(source.name)), None)


def _refuse_changed(lake: Lake, source: str, begun: Erasure | None) -> None:
    """LakeError where bronze or quarantine is another than we have made it: it may have the key."""
    if begun is not None and begun.bronze_version is None:
        return  # it is being rewritten
    if (changed := how_tables_changed(lake, source)) is None:
        return
    if older := older_seals(lake, source):
        mend = how_to_mend("ops/tables")
        raise LakeError(
            f"{older}: {mend.words}",
            code="of_other_times",
            subject="ops/tables",
            command=mend.command,
        )
    way = "put the table back from a copy that is not older first"
    if begun is not None:
        way += (
            "; or give the erasure up with `./stateful set-aside ops/erasures --apply`, ingest anew "
            f"after `./stateful set-aside bronze/{source} --apply`, and erase the key again"
        )
    raise LakeError(f"{changed}: {way}", code="changed_by_others", subject=f"bronze/{source}")


def _refuse_stream(lake: Lake, stream: Stream, key: ErasedKey, begun: Erasure | None) -> None:
    if unknown := find_old_generations(lake, stream, EPOCH).unknown:
        raise LakeError(
            f"{lake.root}/checkpoints/{stream.name} has {', '.join(unknown)}, which ops/generations does not "
            "know, and which may hold the key: move it out of the lake, or delete it",
            code="not_erasable",
            subject=f"checkpoints/{stream.name}",
        )
    generations = read_generations(lake, stream.name)
    if generations.current is None and (left := _left_of(lake, generations)):
        raise LakeError(
            f"{left} is there, and may have the key, but {generations.path} has no generation of "
            f"{stream.name}, which would not be made anew: put that table back from a copy that is not "
            f"older, or make the stream anew",
            code="not_erasable",
            subject=stream.name,
            command=f"./stateful reseed {stream.name} --recompute --apply",
        )
    # Of an erasure that was cut off it is its own.
    if begun is None and generations.intent is not None:
        raise LakeError(
            f"a reseed of {stream.name} was begun and is not finished: run it first",
            code="unfinished_reseed",
            subject=stream.name,
            command=f"./stateful stream {stream.name}",
        )
    if _is_initial(lake, stream, key):
        raise LakeError(
            f"the initial state of {stream.name} has the key: take it out of {lake.initial_state(stream.name)}, "
            "which is yours, and repeat",
            code="not_erasable",
            subject=f"initial_state/{stream.name}",
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
