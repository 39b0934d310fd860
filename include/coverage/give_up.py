"""A reseed that was begun and cannot be finished, given up."""

from datetime import UTC, datetime

from include.coverage.ledger import look
from include.lake.generations import open_intent
from include.lake.lease import hold_lease
from include.lake.ops import update_ops
from include.lake.paths import Lake
from include.streams import SettingsError, Stream


def give_up_reseed(lake: Lake, stream: Stream) -> int:
    """Take the open intent of `stream` back; the generation that will not be.

    SettingsError when there is none, or when its rows are in the table: what they replaced is
    gone, so the generation before cannot go on.
    """
    with hold_lease(lake, f"stream-{stream.name}"):
        begun = open_intent(lake, stream.name)
        if begun is None:
            raise SettingsError(f"no reseed of {stream.name} is open: there is nothing to give up")
        generation = int(begun["generation"])
        entries = look(lake, stream.name).entries
        if any(one.kind == "reseed" and one.generation == generation for one in entries):
            raise SettingsError(
                f"the rows of the reseed to generation {generation} are in the table of "
                f"{stream.name}, so the state before cannot go on. Make both anew: `make reseed "
                f"STREAM={stream.name} APPLY=1` plans again, by what is in the table now"
            )
        # Also those that it has overtaken: the next run would carry them out.
        while (row := open_intent(lake, stream.name)) is not None:
            given_up = {"stream": stream.name, "generation": row["generation"]}
            given_up |= {"deleted_at": datetime.now(UTC)}
            update_ops(lake, "generations", ("stream", "generation"), [given_up])
        return generation
