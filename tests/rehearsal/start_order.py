"""In which order services start and stop, by what they depend on."""

from collections.abc import Iterable, Mapping

from tests.rehearsal.compose_file import Service
from tests.rehearsal.interpolation import ComposeError


def start_levels(services: Mapping[str, Service]) -> list[list[str]]:
    """Names in levels: each depends on earlier levels alone. ComposeError names a cycle."""
    levels: list[list[str]] = []
    waiting = dict(services)
    while waiting:
        level = sorted(name for name in waiting if not waiting.keys() & services[name].depends_on)
        if not level:
            raise ComposeError(f"depends_on goes round in a circle: {_cycle(waiting)}")
        levels.append(level)
        for name in level:
            del waiting[name]
    return levels


def stop_levels(services: Mapping[str, Service], running: Iterable[str]) -> list[list[str]]:
    """As an engine stops them: what others depend on, after these."""
    alive = set(running)
    levels = [[name for name in level if name in alive] for level in start_levels(services)]
    return [level for level in reversed(levels) if level]


def _cycle(waiting: Mapping[str, Service]) -> str:
    """One cycle among services none of which can start."""
    path = [min(waiting)]
    while True:
        following = min(other for other in waiting[path[-1]].depends_on if other in waiting)
        if following in path:
            return " -> ".join([*path[path.index(following) :], following])
        path.append(following)
