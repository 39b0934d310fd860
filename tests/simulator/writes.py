"""Every write of a simulated process, counted; and a process that dies before one of them.

`Killed` is no Exception, as a kill is none: nothing handles it. From then on each further write
raises it again, so that what stands in a `finally` writes nothing either: the process is dead.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import deltalake
import pytest
from deltalake.table import TableAlterer, TableMerger, TableOptimizer

from include.lake.paths import Lake
from include.lake.table import stage
from tests.simulator.replaced import OURS, everywhere

# Those of delta-rs that commit. What opens or reads a table is no write.
METHODS = {
    deltalake.DeltaTable: (
        "delete",
        "update",
        "vacuum",
        "restore",
        "repair",
        "create_checkpoint",
        "create_write_transaction",
    ),
    TableMerger: ("execute",),
    TableOptimizer: ("compact", "z_order"),
    TableAlterer: ("add_columns", "add_constraint", "set_table_properties"),
}


Made = TypeVar("Made")


class Killed(BaseException):  # what happens to a process, not an error of it
    """The simulated process died before a write."""


def die(where: str) -> None:
    """The end of a simulated process. `tests/chaos` has real ones."""
    raise Killed(where)


class Writes:
    """The writes since `killing` began. `names` are those that happened."""

    def __init__(self, at: int | None, meanwhile: Callable[[], None] | None = None) -> None:
        self._at = at
        self._meanwhile = meanwhile
        self.names: list[str] = []
        self.killed = False

    @property
    def count(self) -> int:
        """The number of writes so far."""
        return len(self.names)

    def before(self, name: str) -> None:
        if self._meanwhile is not None:
            self._let_happen(name)
        elif self.killed or (self._at is not None and self.count + 1 >= self._at):
            self.killed = True
            die(f"before write {self.count + 1}: {name}")
        else:
            self.names.append(name)

    def _let_happen(self, name: str) -> None:
        self.names.append(name)
        if self.count == self._at:
            assert self._meanwhile is not None
            self._meanwhile()


_current: Writes | None = None


def write_point(name: str) -> None:
    """To be called before each write to a file that does not go through delta-rs."""
    if _current is not None:
        _current.before(name)


def is_killing() -> bool:
    """True while writes are counted."""
    return _current is not None


@contextmanager
def killing(at: int | None = None, meanwhile: Callable[[], None] | None = None) -> Iterator[Writes]:
    """Count the writes while the body runs; die before write number `at`, from 1. None: never.

    With `meanwhile` nobody dies: that is what another process does just before that write.
    `Killed` comes out of the body; `writes_of` and `killed_at` catch it.
    """
    global _current
    assert _current is None, "one process at a time"
    with pytest.MonkeyPatch.context() as patch:
        _patch_delta(patch)
        _current = Writes(at, meanwhile)
        try:
            yield _current
        finally:
            _current = None


def writes_of(action: Callable[[], object]) -> Writes:
    """Do it to its end, and say what it wrote."""
    with killing() as writes:
        action()
    return writes


def killed_at(at: int, action: Callable[[], object]) -> bool:
    """Do it, and die before write number `at`; whether it came to that."""
    with killing(at) as writes, suppress(Killed):
        action()
    return writes.killed


def killed_before_each(
    make: Callable[[], AbstractContextManager[Made]],
    job: Callable[[Made], object],
    every: int = 1,
) -> Iterator[Made]:
    """Yield what `make` makes, once for each write of a job, or `every` other, which has died before it."""
    with make() as made:
        writes = writes_of(lambda: job(made)).count
    for number in range(1, writes + 1, every):
        with make() as made:
            assert killed_at(number, lambda made=made: job(made)), number
            yield made


def _patch_delta(patch: pytest.MonkeyPatch) -> None:
    original = deltalake.write_deltalake
    counted = _counted(original, "write_deltalake")
    everywhere(patch, original, counted, (*OURS, "deltalake"))
    everywhere(patch, stage, _counted(stage, "stage"))
    for method in ("write", "delete"):
        patch.setattr(Lake, method, _counted(getattr(Lake, method), method))
    for kind, methods in METHODS.items():
        for method in methods:
            patch.setattr(kind, method, _counted(getattr(kind, method), method))
    patch.setattr(deltalake.DeltaTable, "create", staticmethod(_counted_create()))


def _counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def counted(*args: Any, **named: Any) -> Any:
        if not (name == "vacuum" and named.get("dry_run", True)):
            write_point(f"{name} {_table(args)}")
        return function(*args, **named)

    return counted


def _counted_create() -> Callable[..., Any]:
    create = deltalake.DeltaTable.create

    def counted(table_uri: Any, *args: Any, **named: Any) -> Any:
        there = named.get("mode") == "ignore" and deltalake.DeltaTable.is_deltatable(str(table_uri))
        if not there:
            write_point(f"create {table_uri}")
        return create(table_uri, *args, **named)

    return counted


def _table(args: tuple[Any, ...]) -> str:
    """The table or file that is written, for people."""
    if args and isinstance(args[0], Lake):
        return str(args[1])
    target = getattr(args[0], "table", args[0]) if args else ""
    return str(getattr(target, "table_uri", target))
