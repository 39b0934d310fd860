"""The knowledge that outlives a driver: of producers, people and the oracle."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from include.streams import sources
from tests.simulator.operations import Operations

# What is set of streams, in the world and of the auditor, by their names there.
STREAM = ("on_error", "watermark_delay")
WORLD = ("now_us", "commits", "_repairs", "source", "files_landed", "landed")
AUDITOR = ("mapped", "marks")


@dataclass
class Known:
    """Kept in a file, so that a driver which is killed leaves it behind."""

    step: int = 0  # of the plan: the action that is next, or at work
    job: int = 0  # of that action: which one has begun last, from 1
    retained: dict[str, Any] = field(default_factory=dict)

    def keep(self, operations: Operations) -> None:
        world, auditor = operations.world, operations.auditor
        self.retained = {
            "world": {name: getattr(world, name) for name in WORLD},
            "auditor": {name: getattr(auditor, name) for name in AUDITOR},
            "streams": {
                kind: {name: getattr(stream, name) for name in STREAM}
                for kind, stream in world.streams.items()
            },
            "deployed": dict(world.deployed),
            "copies": operations.copies.made,
            "harmed": operations.harmed,
        }

    def give(self, operations: Operations) -> None:
        """To the next driver what the one before knew."""
        world, retained = operations.world, self.retained
        for kind, settings in retained["streams"].items():
            world.configure(kind, **settings)
        for name, value in retained["world"].items():
            setattr(world, name, value)
        sources.SOURCES = (world.source,)
        for kind, variant in retained["deployed"].items():
            world.deploy(kind, variant)
        for name, value in retained["auditor"].items():
            setattr(operations.auditor, name, value)
        operations.copies.made.update(retained["copies"])
        operations.harmed = retained["harmed"]

    def write(self, path: Path) -> None:
        written = path.with_suffix(".new")
        written.write_bytes(pickle.dumps(self))
        written.replace(path)


def read_known(path: Path) -> Known:
    """Read it from the file of a seed, if that has begun."""
    if not path.exists():
        return Known()
    known: Known = pickle.loads(path.read_bytes())
    return known
