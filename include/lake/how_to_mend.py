"""What to do about a table, or a checkpoint, of which a file is lost or damaged: for a message."""

import re

PUT_BACK = "put it back from a copy of the lake that is not older"
PART = re.compile(
    r"(bronze|quarantine|ingested_files|tables|rejected|savepoints|ops|checkpoints)"
    r"/([^/]+)"
)
OF_SOURCE = ("bronze", "quarantine", "ingested_files")


def how_to_mend(path: str) -> str:
    """For a path in a lake, such as bronze/signals: how all that is in it is made right again."""
    found = PART.findall(path)
    if not found:
        return PUT_BACK
    kind, subject = found[-1]
    if kind in OF_SOURCE:
        return f"{PUT_BACK}; or, {how_to_ingest_anew(subject)}"
    set_aside = f"`./stateful set-aside {kind}/{subject} --apply`"
    reseed = f"`./stateful reseed {subject} --apply`"
    if kind == "tables":
        return f"{PUT_BACK}; or {how_to_make_anew(subject)}"
    if kind in ("checkpoints", "rejected"):
        return f"{PUT_BACK}; or make state and table anew: {reseed}"
    if kind == "savepoints":
        return f"{PUT_BACK}; or go on without them, as they are made anew: {set_aside}"
    return f"{PUT_BACK}; or go on without it: {set_aside}"


def how_to_make_anew(stream: str) -> str:
    """For a product table, whatever it is now."""
    return (
        f"make it anew from bronze: `./stateful set-aside tables/{stream} --apply`, and then "
        f"`./stateful reseed {stream} --apply`"
    )


def how_to_trust_again(stream: str) -> str:
    """For a product table that is not what was recorded of it."""
    return (
        "put it back from a copy that is not older, or make it anew from bronze: "
        f"`./stateful reseed {stream} --apply`"
    )


def how_to_ingest_anew(source: str) -> str:
    """What to do where there is no copy of a source's tables."""
    return (
        f"to ingest {source} anew from where it came: `./stateful set-aside bronze/{source} --apply`, "
        "which says what follows"
    )
