"""A clock that is set, in the place of the machine's, in all that has been imported."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest

PROJECT = ("include", "spark_jobs")
FOLD = ["include", "fold"]


def patch_everywhere(patch: pytest.MonkeyPatch, name: str, old: Any, new: Any) -> None:
    for module in _project_modules():
        if getattr(module, name, None) is old:
            patch.setattr(module, name, new)


def _project_modules() -> list[Any]:
    # But for the fold, which knows of no now, and by the type of a value what it is.
    named = [(name, module) for name, module in sys.modules.items() if name.split(".")[:2] != FOLD]
    return [module for name, module in named if name.partition(".")[0] in PROJECT]


def clock_of(now_of_world: Callable[[], datetime]) -> type[datetime]:
    """`datetime`, with another time for now. Every datetime is one of it."""

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class WorldTime(datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return now_of_world().astimezone(tz or UTC)

    return WorldTime
