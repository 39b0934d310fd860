"""What a worker's garbage collector looks at."""

import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from spark_jobs.engines import worker_garbage
from spark_jobs.engines.worker_garbage import leave_imports_alone


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.unfreeze()
    monkeypatch.setattr(worker_garbage, "_left_alone", 0)
    yield
    gc.unfreeze()


def test_what_is_there_is_left_alone_and_what_comes_later_is_collected():
    leave_imports_alone()
    assert not is_looked_at(gc)
    later = weakref.ref(Cycle())
    leave_imports_alone()  # for the next task
    gc.collect()
    assert later() is None


def test_what_a_task_has_imported_is_left_alone_from_the_next_on(monkeypatch: pytest.MonkeyPatch):
    leave_imports_alone()
    imported = ModuleType("imported")
    monkeypatch.setitem(sys.modules, "imported", imported)
    assert is_looked_at(imported)
    leave_imports_alone()
    assert not is_looked_at(imported)


def is_looked_at(thing: object) -> bool:
    return any(each is thing for each in gc.get_objects())
