"""What to do about a table, or a checkpoint, of which a file is lost or damaged."""

from pathlib import PurePosixPath

from include.landing.ingest_seal import how_to_ingest_anew

PUT_BACK = "put it back from a copy of the lake that is not older"


def how_to_mend(name: str) -> str:
    """For `name` below the lake, such as bronze/signals: how all that is in it is made right again."""
    kind, subject = (*PurePosixPath(name).parts, "", "")[:2]
    if kind == "bronze":
        return f"{PUT_BACK}; or, {how_to_ingest_anew(subject)}"
    if kind in ("tables", "checkpoints", "rejected"):
        return f"{PUT_BACK}; or make state and table anew: `./stateful reseed {subject} --apply`"
    if kind == "savepoints":
        return "nothing: a savepoint that cannot be read is struck off when it is needed"
    return PUT_BACK
