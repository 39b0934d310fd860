"""By what a version of somebody else's Delta table is known again.

A table that is put back from an older copy keeps its id, and gives its next versions numbers that
others had. Their commits differ: in times, and in the names of files.
"""

import hashlib
import json
from collections.abc import Iterable

from include.landing.delta_commits import Actions, CleanedUpError, LostCommitError, actions_of
from include.landing.delta_parts import COMMIT, VersionPart


def end_of(uri: str, version: int, actions: Actions | None = None) -> VersionPart:
    """What says that a version is taken; without `actions` its commit is read, where it can be."""
    try:
        mark = _mark_of(actions_of(uri, version) if actions is None else actions)
    except LostCommitError:
        return VersionPart(version, "")
    return VersionPart(version, f"{COMMIT}{mark}")


def is_another(uri: str, end: VersionPart) -> bool:
    """Whether the table has another version of that number now; False where nothing tells."""
    found = end_of(uri, end.version).mark if end.mark else None
    return found is not None and found != end.mark


def newest_same(uri: str, ends: Iterable[VersionPart], newest: int) -> VersionPart | None:
    """The newest of the versions that were taken which the table still has; None: none is known."""
    marked = {end for end in ends if end.mark and end.version <= newest}
    try:
        for end in sorted(marked, reverse=True):
            if _has(uri, end):
                return end
    except CleanedUpError:  # and so were all before it
        return None
    return None


def _has(uri: str, end: VersionPart) -> bool:
    try:
        return _mark_of(actions_of(uri, end.version)) == end.mark
    except CleanedUpError:
        raise
    except LostCommitError:
        return False


def _mark_of(actions: Actions) -> str:
    return hashlib.sha256(json.dumps(actions, sort_keys=True).encode()).hexdigest()[:32]
