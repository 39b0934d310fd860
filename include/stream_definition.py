"""What a stream computes: its file, `spark_jobs/streams/<name>.py`, read with its entry's settings.

A file defines COMMENTS, and either FOLD or, when it takes settings, `define(*, ...) -> KeyedFold`.
After a change of its state it may define `migrate_state(old: dict[str, Any]) -> State`, from a
key's old state to its new one.
"""

import importlib
import importlib.util
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any

from include.fold.definition import Definition, KeyedFold, MigrateState
from include.fold.records import DefinitionError
from include.fold.schemas import keys_ddl, states_ddl
from include.streams import MILLISECOND, SettingsError, Stream, source_named


def load_definition(stream: Stream) -> Definition:
    """The definition of `stream`. SettingsError says what its file or its entry lacks."""
    path = f"spark_jobs/streams/{stream.name}.py"
    if importlib.util.find_spec(f"spark_jobs.streams.{stream.name}") is None:
        raise SettingsError(
            f"stream {stream.name} has an entry in include/streams.py, but no {path}"
        )
    module = importlib.import_module(f"spark_jobs.streams.{stream.name}")
    fold = _fold_of(module, stream, path)
    fold = replace(fold, stream=stream.name, on_error=stream.on_error)
    if not hasattr(module, "COMMENTS"):
        raise SettingsError(f"{path} must define COMMENTS; see the README, Add a stream")
    unsaid = {column.name for column in fold.output_columns} - set(module.COMMENTS)
    if unsaid:
        raise SettingsError(f"{path}: COMMENTS says nothing of {', '.join(sorted(unsaid))}")
    _check_required(fold, stream)
    _check_delay(fold, stream)
    title = (module.__doc__ or stream.name).splitlines()[0]
    return Definition(fold, title, module.COMMENTS, _migrate_state_of(module, path))


def _migrate_state_of(module: ModuleType, path: str) -> MigrateState | None:
    migrate: MigrateState | None = getattr(module, "migrate_state", None)
    if migrate is not None and not callable(migrate):
        raise SettingsError(f"{path}: migrate_state must be a function of a key's old state")
    return migrate


def _fold_of(module: ModuleType, stream: Stream, path: str) -> KeyedFold:
    if hasattr(module, "define"):
        return _defined(module, stream)
    if not hasattr(module, "FOLD"):
        raise SettingsError(f"{path} must define FOLD or define(); see the README, Add a stream")
    if stream.settings:
        raise SettingsError(
            f"stream {stream.name}: {path} takes no settings, but its entry has "
            f"{', '.join(stream.settings)}"
        )
    fold: KeyedFold = module.FOLD
    return fold


def _defined(module: ModuleType, stream: Stream) -> KeyedFold:
    wanted = set(inspect.signature(module.define).parameters)
    given = set(stream.settings)
    if wanted != given:
        raise SettingsError(
            f"stream {stream.name}: its settings are {', '.join(sorted(wanted))}, but its entry "
            f"in include/streams.py has {', '.join(sorted(given)) or 'none'}"
        )
    try:
        fold: KeyedFold = module.define(**stream.settings)
    except DefinitionError as error:
        raise SettingsError(f"stream {stream.name}: {error}") from error
    return fold


def _check_required(fold: KeyedFold, stream: Stream) -> None:
    """An Event field that is never None must not be missing in bronze."""
    optional = {field.name for field in source_named(stream.source).fields if not field.required}
    for column in fold.event_columns:
        if column.name in optional and not column.nullable:
            raise SettingsError(
                f"stream {stream.name}: {fold.event.__name__}.{column.name} is never None, but "
                f"source {stream.source} does not require it: declare it `| None`, or required "
                "in include/streams.py"
            )


def _check_delay(fold: KeyedFold, stream: Stream) -> None:
    if fold.in_processing_time and stream.watermark_delay:
        raise SettingsError(
            f"stream {stream.name}: nothing comes late in processing time, so watermark_delay "
            f"must be 0, not {stream.watermark_delay}"
        )


def pinned_settings(stream: Stream, fold: KeyedFold) -> dict[str, Any]:
    """What the state and the table of a stream stand on, as `ops/generations` names it."""
    return {
        "buckets": stream.buckets,
        "state_partitions": stream.state_partitions,
        "state_schema": f"{keys_ddl(fold)}, {states_ddl(fold)}",
        "source": stream.source,
        "key": fold.key,
        "output_mode": fold.output_mode,
        "watermark_delay_ms": stream.watermark_delay // MILLISECOND,
        "timeout": fold.timeout if fold.times_out else None,
        "settings": _as_json(stream.settings) if stream.settings else None,
    }


def _as_json(settings: Mapping[str, Any]) -> str:
    plain = {
        name: str(value) if isinstance(value, timedelta) else value
        for name, value in settings.items()
    }
    return json.dumps(plain, sort_keys=True, default=repr)
