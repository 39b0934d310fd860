"""What a worker's garbage collector looks at."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from spark_jobs.engines.bucket_processor import leave_imports_alone


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    leave_imports_alone.cache_clear()
    yield
    gc.unfreeze()
    leave_imports_alone.cache_clear()


def test_what_is_there_is_left_alone_and_what_comes_later_is_collected(nothing_frozen: None):
    leave_imports_alone()
    assert id(gc) not in map(id, gc.get_objects())
    later = weakref.ref(Cycle())
    leave_imports_alone()  # for the next task
    gc.collect()
    assert later() is None
