"""A stream and what is recorded of it, read once and handed on: all that decides goes by it."""

from dataclasses import dataclass, replace
from functools import cached_property

from include.coverage.ledger import Look, look
from include.fold.definition import Definition, KeyedFold
from include.lake.generations import GenerationRow, Generations, is_reseeded, read_generations
from include.lake.paths import Lake
from include.plans.stream_identity import identity_of
from include.savepoints.identity import StreamIdentity
from include.settings import Stream
from include.stream_definition import load_definition


@dataclass(frozen=True)
class OpenStream:
    """As of one reading of `ops/generations`. Who writes there opens the stream `again`."""

    lake: Lake
    declared: Stream  # as its file says
    generations: Generations

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def source(self) -> str:
        return self.declared.source

    @property
    def row(self) -> GenerationRow | None:
        """Of the current generation; None before the first run or reseed."""
        return self.generations.current

    @property
    def generation(self) -> int:
        return self.generations.number

    @property
    def checkpoint(self) -> str:
        """Where the current generation's is, or will be."""
        return self.lake.checkpoint(self.name, self.generation)

    @property
    def is_reseeded(self) -> bool:
        """Whether the generation began with a savepoint, and not with a stream's first run."""
        return is_reseeded(self.row)

    @cached_property
    def stream(self) -> Stream:
        """With the buckets and state partitions that the generation was made with.

        Those of the file are for a first generation; afterwards only a reseed changes them.
        """
        row = self.row
        if row is None or not self.is_reseeded:
            return self.declared
        pinned = {name: row[name] for name in ("buckets", "state_partitions")}
        return replace(self.declared, **pinned)

    @cached_property
    def definition(self) -> Definition:
        """Raises SettingsError when the stream's file is wrong."""
        return load_definition(self.stream)

    @property
    def fold(self) -> KeyedFold:
        return self.definition.fold

    @cached_property
    def identity(self) -> StreamIdentity:
        """Raises SettingsError when the stream's file or its initial state is wrong."""
        return identity_of(self.lake, self.stream, self.generations)

    @cached_property
    def seen(self) -> Look:
        """Its ledger, compared with its table and its checkpoint."""
        return look(self.lake, self.generations)

    def again(self) -> "OpenStream":
        """As it is after a write."""
        return open_stream(self.lake, self.declared)


def open_stream(lake: Lake, stream: Stream) -> OpenStream:
    """`stream` as it is recorded now: under its lease, who writes; without it, who only looks."""
    return OpenStream(lake, stream, read_generations(lake, stream.name))
