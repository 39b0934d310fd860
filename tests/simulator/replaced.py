"""A function of the project, or the machine's clock, in all modules that have imported it."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest

PRODUCT = ("include.", "spark_jobs.")
OURS = (*PRODUCT, "tests.")
FOLD = "include.fold."  # it knows of no now, and by the type of a value what it is


def everywhere(
    patch: pytest.MonkeyPatch,
    old: Any,
    new: Any,
    rooms: tuple[str, ...] = OURS,
    but: tuple[str, ...] = (),
) -> None:
    """Put `new` in the place of `old`, by its name."""
    for path, module in list(sys.modules.items()):
        is_ours = path.startswith(rooms) and not path.startswith(but)
        if is_ours and getattr(module, old.__name__, None) is old:
            patch.setattr(module, old.__name__, new)


def set_clock(patch: pytest.MonkeyPatch, now_of_world: Callable[[], datetime]) -> None:
    """`datetime` of the product with another time for now. Every datetime is one of it."""

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class WorldTime(datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return now_of_world().astimezone(tz or UTC)

    everywhere(patch, datetime, WorldTime, PRODUCT, but=(FOLD,))
