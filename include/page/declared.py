"""The streams as their files declare them now, for a server whose files change while it runs."""

import importlib
import sys
from pathlib import Path
from threading import Lock

import include.registry
import include.streams
from include.lake.errors import SettingsError

_reading = Lock()
_read_at: dict[Path, int] = {}


def declared() -> include.registry.Declared:
    """Return the streams of include/streams; raises SettingsError when sources.py is wrong."""
    with _reading:  # requests come in threads
        _forget_changed()
        return include.registry.declared()


def _forget_changed() -> None:
    """Forget all modules of the folder when a file of it has changed: they may import each other."""
    folder = Path(include.streams.__path__[0])
    found = {file: file.stat().st_mtime_ns for file in folder.rglob("*.py")}
    if found == _read_at:
        return
    for name in [name for name in sys.modules if name.startswith("include.streams.")]:
        del sys.modules[name]
        vars(include.streams).pop(name.removeprefix("include.streams."), None)
    importlib.invalidate_caches()
    try:
        importlib.reload(include.registry)  # it imports the sources
    except Exception as error:  # whatever the user's file raises
        file = f"{include.streams.FOLDER}/sources.py"
        raise SettingsError(f"{file}: {type(error).__name__}: {error}", subject=file) from error
    _read_at.clear()
    _read_at.update(found)
