"""Look twice at what waits for streams, and print it as JSON: `python -m include.observe.arrival LAKE SECONDS`.

A process of its own for each look: Airflow's triggerer lives for weeks, and would go by the files of
`include/streams` as they were when it began. Functions import what reads a lake: the triggerer needs `Memory` alone.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from include.registry import declared, source_named
from include.settings import Stream

if TYPE_CHECKING:
    from include.lake.paths import Lake

log = logging.getLogger("arrival")

QUIET_SECONDS = 10.0  # so long nothing more has come: a burst has ended
AGAIN_SECONDS = 600.0  # what waits for so long has lost its start, or its run has failed


class Waiting(NamedTuple):
    """The work that a run of a stream would find."""

    done: int  # splits that batches of its source have
    waiting: int  # files, or offsets, that none has
    is_quiet: bool = False


class Memory:
    """The last start that was asked for; if it is lost, as with a triggerer, one too many is."""

    _asked: Waiting | None = None
    _asked_at = 0.0
    _is_coming = False

    def is_due(self, found: Waiting | None, now: float) -> bool:
        """True if a start is to be asked for: something new waits, or the same for AGAIN_SECONDS."""
        if found is None:
            self._asked, self._is_coming = None, False
            return False
        is_new = self._is_new(found)
        if is_new and not found.is_quiet and not self._is_coming:
            self._is_coming = True  # what does not end is not waited for longer than one look
            return False
        if not is_new and now - self._asked_at < AGAIN_SECONDS:
            return False
        self._asked, self._asked_at, self._is_coming = found, now, False
        return True

    def _is_new(self, found: Waiting) -> bool:
        """True if more has come: a run that takes in what was asked for leaves bronze's rows to fold."""
        before = self._asked
        return before is None or (found.waiting > 0 and found[:2] != before[:2])


def look(lake: "Lake", streams: Iterable[Stream]) -> dict[str, Waiting]:
    """Return what waits, by stream; one that cannot be read is left to its schedule."""
    from include.ingest.ingest_log import read_done
    from include.ingest.source_connector import lag_of_run
    from include.lake.delta_log import first_line
    from include.lake.errors import StatefulError
    from include.observe.stream_line import READ_ERRORS
    from include.stream.open_stream import has_waiting_rows

    found: dict[str, Waiting] = {}
    for stream in streams:
        try:
            source = source_named(stream.source)
            done = read_done(lake, source.name)
            waiting = lag_of_run(lake, source, done).waiting
            if waiting or has_waiting_rows(lake, stream):
                found[stream.name] = Waiting(done.count, waiting)
        except (StatefulError, *READ_ERRORS) as error:
            log.warning("%s: %s", stream.name, first_line(error))
    return found


def look_twice(lake: "Lake", streams: Iterable[Stream]) -> dict[str, Waiting]:
    """Return what waits at the second look, and whether the same did at the first."""
    streams = list(streams)
    if not (first := look(lake, streams)):
        return {}
    time.sleep(QUIET_SECONDS)
    second = look(lake, [stream for stream in streams if stream.name in first])
    return {name: found._replace(is_quiet=found == first[name]) for name, found in second.items()}


def main(root: str, seconds: str) -> None:
    """Print what waits for the streams with this `on_arrival`."""
    from include.lake.paths import open_lake

    every = timedelta(seconds=float(seconds))
    streams = [stream for stream in declared().streams if stream.on_arrival == every]
    print(json.dumps(look_twice(open_lake(root), streams)), flush=True)  # noqa: T201


if __name__ == "__main__":
    logging.basicConfig(format="%(name)s: %(message)s")
    main(*sys.argv[1:])
