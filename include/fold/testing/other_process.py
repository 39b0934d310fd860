"""Another process, in which nothing is left of this one: no global, no cache, no order of sets.

    python -m include.fold.testing.other_process

reads a fold from stdin, and then cases, and writes to stdout what the fold comes to.
"""

import io
import marshal
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from include.fold.definition import Key, KeyedFold
from include.fold.testing.tell import Arriving, Told, tell

# Of texts: another than this process has. A run of a stream has any.
HASH_SEED = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"


class UnknownThereError(TypeError):
    """The fold cannot be sent to another process: the message says what of it, and why."""


class OtherProcess:
    """A process that knows a fold, until the end of a `with`."""

    def __init__(self, fold: KeyedFold) -> None:
        fold_bytes = _pickled(fold)
        paths = os.pathsep.join(path or os.curdir for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": HASH_SEED, "PYTHONPATH": paths},
        )
        self._send(fold_bytes)

    def __enter__(self) -> "OtherProcess":
        return self

    def __exit__(self, *failure: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()  # without a stdin it ends

    def tell(self, parts: Sequence[Arriving], states: Mapping[Key, Any]) -> Told:
        """What the runs come to there."""
        self._send(_pickled(([(list(events), us) for events, us in parts], dict(states))))
        if self._process.stdout is None:
            raise BrokenPipeError("the other process has no stdout")
        try:
            told: Told = pickle.load(self._process.stdout)  # noqa: S301 (of a child of ours)
        except EOFError:
            raise UnknownThereError(
                "the other process has ended; on stderr it says why. If it cannot import what the "
                "fold needs, put that into a module, or call check_fold(..., other_process=False)"
            ) from None
        return told

    def _send(self, message: bytes) -> None:
        if self._process.stdin is None:
            raise BrokenPipeError("the other process has no stdin")
        self._process.stdin.write(message)
        self._process.stdin.flush()


class _Pickler(pickle.Pickler):
    """Functions by name; one that was made by a function with all that it holds."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.FunctionType) or _is_importable(obj):
            return NotImplemented
        if obj.__module__ == "__main__" or obj.__module__ not in sys.modules:
            raise UnknownThereError(
                f"{obj.__qualname__} is of {obj.__module__}, which another process cannot import: "
                "put the fold into a module, or call check_fold(..., other_process=False)"
            )
        cells = [cell.cell_contents for cell in obj.__closure__ or ()]
        defaults = (obj.__defaults__, obj.__kwdefaults__)
        return _made, (marshal.dumps(obj.__code__), obj.__module__, cells, *defaults)


def _is_importable(function: types.FunctionType) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function and function.__module__ != "__main__"


def _made(code: bytes, module: str, cells: list[Any], defaults: Any, by_name: Any) -> Any:
    names = import_module(module).__dict__
    held = tuple(types.CellType(value) for value in cells)
    function = types.FunctionType(marshal.loads(code), names, None, defaults, held)  # noqa: S302 (of our parent)
    function.__kwdefaults__ = by_name
    return function


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except (pickle.PicklingError, AttributeError, ValueError, RecursionError) as error:
        raise UnknownThereError(
            f"the fold cannot be sent to another process ({error}): move its records and functions "
            "to the top of a module, or call check_fold(..., other_process=False)"
        ) from error
    return file.getvalue()


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the function prints
    fold = pickle.load(sys.stdin.buffer)  # noqa: S301 (of our parent)
    for parts, states in _questions():
        pickle.dump(tell(fold, parts, states), answers)
        answers.flush()


def _questions() -> Iterator[tuple[list[Arriving], dict[Key, Any]]]:
    while True:
        try:
            yield pickle.load(sys.stdin.buffer)  # noqa: S301 (of our parent)
        except EOFError:  # nobody asks any more
            return


if __name__ == "__main__":
    main()
