"""What a stream's entry holds by hand, checked: Spark says nothing of a wrong name."""

from collections.abc import Mapping
from difflib import get_close_matches

from include.care.rocksdb.settings import (
    HIGH_PRIORITY,
    PINNED,
    RATIOS_TOGETHER,
    SETTINGS,
    WRITE_BUFFER_RATIO,
)
from include.settings import SettingsError, Stream


def hand_settings(stream: Stream) -> Mapping[str, str]:
    """The stream's `rocksdb`; SettingsError names the setting that is wrong, and what may be."""
    for name, value in stream.rocksdb.items():
        _check_name(stream.name, name)
        allowed = SETTINGS[name].allowed
        if not isinstance(value, str) or not allowed.allows(value):
            raise SettingsError(
                f"stream {stream.name}: rocksdb setting {name} must be {allowed}, as text, "
                f"not {value!r}"
            )
    _check_ratios(stream)
    return stream.rocksdb


def _check_name(stream: str, name: str) -> None:
    if name in PINNED:
        raise SettingsError(
            f"stream {stream}: rocksdb setting {name} cannot be set: it is {PINNED[name]}, "
            "which the first run writes into the checkpoint, and Spark ignores another later"
        )
    if name not in SETTINGS:
        near = get_close_matches(name, SETTINGS, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]}? " if near else ""
        raise SettingsError(
            f"stream {stream}: unknown rocksdb setting {name!r}: {hint}known are "
            f"{', '.join(sorted(SETTINGS))}"
        )


def _check_ratios(stream: Stream) -> None:
    """Spark refuses the two together when a store opens, in the middle of a run."""
    held = stream.rocksdb
    if WRITE_BUFFER_RATIO in held and HIGH_PRIORITY in held:
        ratios = float(held[WRITE_BUFFER_RATIO]), float(held[HIGH_PRIORITY])
        if round(sum(ratios), 6) > RATIOS_TOGETHER:
            raise SettingsError(
                f"stream {stream.name}: rocksdb settings {WRITE_BUFFER_RATIO} {ratios[0]:g} and "
                f"{HIGH_PRIORITY} {ratios[1]:g} must be {RATIOS_TOGETHER:g} together at most"
            )
