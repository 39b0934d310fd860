"""A reseed that was begun and cannot be finished, given up."""

from datetime import UTC, datetime

from include.coverage.ledger import Look, distrust_error, look
from include.lake.generations import Generations, read_generations
from include.lake.lease import hold_lease
from include.lake.ops import update_ops
from include.lake.paths import Lake
from include.settings import SettingsError, Stream


def give_up_reseed(lake: Lake, stream: Stream) -> int:
    """Take the open intent of `stream` back; the generation that will not be.

    SettingsError when there is none, or when its rows are in the table: what they replaced is
    gone, so the generation before cannot go on.
    """
    with hold_lease(lake, f"stream-{stream.name}"):
        generations = read_generations(lake, stream.name)
        if generations.intent is None:
            raise SettingsError(
                f"no reseed of {stream.name} is open: there is nothing to give up",
                code="nothing_there",
                subject=stream.name,
            )
        take_back(lake, generations, look(lake, generations))
        return int(generations.intent["generation"])


def take_back(lake: Lake, generations: Generations, seen: Look) -> None:
    """Take all open intents back, under the stream's lease; SettingsError as `give_up_reseed`."""
    _refuse_replaced(lake, generations, seen)
    # Also those that it has overtaken: the next run would carry them out.
    for row in sorted(generations.intents, key=lambda row: -int(row["generation"])):
        given_up = {"stream": generations.stream, "generation": row["generation"]}
        given_up |= {"deleted_at": datetime.now(UTC)}
        update_ops(lake, "generations", ("stream", "generation"), [given_up])


def can_be_taken_back(generations: Generations, seen: Look) -> bool:
    """Whether no open reseed has replaced rows of a table that is what the ledger says."""
    return seen.distrust is None and _replaced_by(generations, seen) is None


def _replaced_by(generations: Generations, seen: Look) -> int | None:
    """The newest generation with rows in the table that live has not gone on with."""
    replaced = {one.generation for one in seen.entries if one.kind == "reseed"}
    return max((each for each in replaced if each > generations.number), default=None)


def _refuse_replaced(lake: Lake, generations: Generations, seen: Look) -> None:
    """SettingsError when a reseed has replaced rows of the table and live has not gone on with it;
    be it one that another has overtaken. CoverageError when the table cannot tell."""
    stream = generations.stream
    if seen.distrust is not None:
        raise distrust_error(lake, stream, seen.distrust)
    if generation := _replaced_by(generations, seen):
        raise SettingsError(
            f"the rows of the reseed to generation {generation} are in the table of {stream}, so "
            f"the state before cannot go on. Make both anew, by what is in the table now",
            code="unfinished_reseed",
            subject=stream,
            command=f"./stateful reseed {stream} --apply",
        )
