"""A chain of three streams over real tables without a JVM, all that can be done to it, and an oracle of loops.

    python -m tests.simulator.cascade --seeds 100 --first 1

`a` closes sessions by a timeout, `b` chains their sums in order, `c` counts b's rows under another key.
Wherever a status says nothing is wrong, a table is what nested loops over all root rows come to.
"""

import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pytest

from include.connectors import StreamTable
from include.fold.admission import instant_of, micros_of
from include.ingest.ingest import heartbeat, ingest
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import bronze_rows
from include.ingest.watermark import SourceWatermark, advance_watermark
from include.lake.delta_log import dataset_of, move_aside
from include.lake.errors import LakeError, SettingsError
from include.lake.paths import Lake
from include.registry import source_named, stream_named
from include.settings import Field, SavepointRules, Source, Stream
from include.stream.open_stream import has_waiting_rows
from include.stream.rebuild_plan import RebuildOptions
from include.stream.stream_status import Statuses, StreamStatus, stream_status
from include.streams import sources
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from spark_jobs.run_stream import drain
from tests.amend.scan import files_with
from tests.declared import NOT_WRITTEN, look_in, put_file, register
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine
from tests.simulator.replaced import set_clock
from tests.simulator.world import Begun, fresh_folder
from tests.simulator.writes import killed_at
from tests.sql_checks import judge_rows

START_US = 1_750_032_000_000_000  # 2025-06-16T00:00:00Z
SECOND_US = 1_000_000
GAP_US = 5 * SECOND_US
DELAY_US = 3 * SECOND_US
FOR_EVER_US = 2**63 - 1

HEAD = '''
"""{name} of a cascade"""
from typing import NamedTuple
from include.fold.definition import flat_map_groups_with_state
'''
A = (
    HEAD.format(name="Sessions")
    + f"""
GAP_US = {GAP_US}
FACTOR = {{factor}}

class Click(NamedTuple):
    user: str
    event_time_us: int
    v: int

class Open(NamedTuple):
    first: int
    last: int
    n: int
    s: int

class Session(NamedTuple):
    user: str
    first: int
    n: int
    s: int

def sessions(user, events, state):
    known = state.getOption
    for event in events:
        at = event.event_time_us
        if known is not None and at - known.last >= GAP_US:
            yield Session(user, known.first, known.n, known.s)
            known = None
        first, n, s = (known.first, known.n, known.s) if known else (at, 0, 0)
        known = Open(first, at, n + 1, s * FACTOR % 1009 + event.v)
        state.update(known)
        state.setTimeoutTimestamp(timestampUs=at + GAP_US)
    if state.hasTimedOut:
        known = state.get
        yield Session(user, known.first, known.n, known.s)
        state.remove()

FOLD = flat_map_groups_with_state(
    sessions, key="user", event=Click, state=Open, output=Session, output_mode="append",
    timeout="EventTimeTimeout")
COMMENTS = {{{{name: "Of a cascade" for name in Session._fields}}}}
"""
)
B = (
    HEAD.format(name="Chains")
    + """
class Session(NamedTuple):  # `first` is not taken: a change of it alone is none
    user: str
    event_time_us: int
    n: int
    s: int

class Hash(NamedTuple):
    k: int
    h: int

class Chained(NamedTuple):
    user: str
    k: int
    h: int

def chain(user, events, state):
    k, h = state.get if state.exists else (0, 0)
    for event in events:
        k, h = k + 1, (h * 31 + event.n * 7 + event.s) % 10007
        if k % 2 or h % 3:
            yield Chained(user, k, h % 5)
    state.update(Hash(k, h))

FOLD = flat_map_groups_with_state(
    chain, key="user", event=Session, state=Hash, output=Chained, output_mode="append")
COMMENTS = {name: "Of a cascade" for name in Chained._fields}
"""
)
C = (
    HEAD.format(name="Groups")
    + """
class Chained(NamedTuple):
    k: int
    event_time_us: int
    user: str
    h: int

class Seen(NamedTuple):
    n: int
    last: str

class Group(NamedTuple):
    k: int
    n: int
    last: str

def group(k, events, state):
    n, last = state.get if state.exists else (0, "")
    for event in events:
        n, last = (n * 13 + event.h + 1) % 997, (last + event.user)[-4:]
        yield Group(k, n, last)
    state.update(Seen(n, last))

FOLD = flat_map_groups_with_state(
    group, key="k", event=Chained, state=Seen, output=Group, output_mode="append")
COMMENTS = {name: "Of a cascade" for name in Group._fields}
"""
)


def field_of(name: str, kind: str) -> Field:
    return Field(name=name, type=kind, comment="Of a cascade")


ROOT = Source(
    name="clicks",
    time_field="at",
    comment="What producers send",
    fields=(field_of("user", "string"), field_of("v", "bigint")),
)
SESSIONS = Source(
    name="from_a",
    comment="What a emits",
    connector=StreamTable("a"),
    fields=(field_of("user", "string"), field_of("n", "bigint"), field_of("s", "bigint")),
)
CHAINS = Source(name="from_b", comment="What b emits", connector=StreamTable("b"))
SOURCE_OF = {"a": "clicks", "b": "from_a", "c": "from_b"}
NAMES = tuple(SOURCE_OF)
COLUMNS = {"a": ("user", "first", "n", "s"), "b": ("user", "k", "h"), "c": ("k", "n", "last")}


class Click(NamedTuple):
    user: str
    time_us: int
    v: int


Rows = Counter[tuple[int, tuple[Any, ...]]]  # when each was emitted, and its values


# The oracle shares no code: sorted loops from nothing.


def sessions_of(clicks: list[Click], factor: int) -> Rows:
    out: Rows = Counter()
    for user in {click.user for click in clicks}:
        known: Any = None
        for _, at, v in sorted(click for click in clicks if click.user == user):
            if known and at - known[1] >= GAP_US:
                out[known[1] + GAP_US, (user, known[0], known[2], known[3])] += 1
                known = None
            first, _, n, s = known or (at, at, 0, 0)
            known = (first, at, n + 1, s * factor % 1009 + v)
        out[known[1] + GAP_US, (user, known[0], known[2], known[3])] += 1
    return out


def chains_of(rows: Rows) -> Rows:
    out: Rows = Counter()
    for user in {values[0] for _, values in rows}:
        k = h = 0
        for at, (_, _, n, s) in _in_order(rows, lambda at, of: (at, of[2], of[3]), user, 0):
            k, h = k + 1, (h * 31 + n * 7 + s) % 10007
            if k % 2 or h % 3:
                out[at, (user, k, h % 5)] += 1
    return out


def groups_of(rows: Rows) -> Rows:
    out: Rows = Counter()
    for k in {values[1] for _, values in rows}:
        n, last = 0, ""
        for at, (user, _, h) in _in_order(rows, lambda at, of: (at, of[0], of[2]), k, 1):
            n, last = (n * 13 + h + 1) % 997, (last + user)[-4:]
            out[at, (k, n, last)] += 1
    return out


def _in_order(rows: Rows, order: Callable[..., Any], key: object, position: int) -> list[Any]:
    own = (each for each in rows.elements() if each[1][position] == key)
    return sorted(own, key=lambda each: order(*each))


class WrongError(AssertionError):
    """A table is not what its status says."""


class Cascade:
    """The chain, and everything that is done to it; `check` holds what is said against the oracle."""

    source_of: Mapping[str, str] = SOURCE_OF
    columns: Mapping[str, tuple[str, ...]] = COLUMNS
    sources: tuple[Source, ...] = (ROOT, SESSIONS, CHAINS)
    followed: Mapping[str, str] = {"b": "b", "c": "c"}  # before a stream runs

    def __init__(self, folder: Path) -> None:
        self.lake = Lake(str(folder / "lake"))
        Path(self.lake.root).mkdir()
        self.files = folder / "streams"
        self.files.mkdir()
        self.engine = LocalEngine(LiveModel(), judge_rows)
        self.now_us = START_US
        self.landed = defaultdict[str, list[Click]](list)
        self.factor = 3
        self.compared = self.taken_back = 0
        self.checked: object = None  # what was there at the last check
        self.streams = {
            name: Stream(
                name=name,
                source=source,
                schedule="0 * * * *",
                watermark_delay=timedelta(microseconds=DELAY_US if name == "a" else 0),
                fold=NOT_WRITTEN,
                comments={},
                buckets=2,
                state_partitions=1,
                savepoints=SavepointRules(cadence=timedelta(seconds=20), events_apart=4),
            )
            for name, source in self.source_of.items()
        }

    @property
    def clicks(self) -> list[Click]:
        return self.landed[ROOT.name]

    @property
    def roots(self) -> list[Source]:
        return [source for source in self.sources if source.connector is None]

    def now(self) -> datetime:
        return instant_of(self.now_us)

    def put_files(self) -> None:
        for name, text in {"a": A.format(factor=self.factor), "b": B, "c": C}.items():
            put_file(self.files / f"{name}.py", text, self.streams[name])

    def copied(self, folder: Path) -> Begun:
        lake = Path(shutil.copytree(self.lake.root, folder / "lake"))
        return Begun(lake, self.now_us, {name: [*rows] for name, rows in self.landed.items()})

    def go_on(self, begun: Begun) -> None:
        shutil.copytree(begun.lake, self.lake.root, dirs_exist_ok=True)
        self.now_us = begun.now_us
        self.landed.update({name: [*rows] for name, rows in begun.told.items()})

    # What is done

    def land(self, *clicks: Click, root: Source = ROOT) -> None:
        """One commit of a root's bronze."""
        newest_us = max(click.time_us for click in clicks)
        columns = zip(*clicks, strict=True)
        events = pa.table(
            dict(zip(("user", "event_time_us", "v"), map(list, columns), strict=True))
        )
        events = events.append_column("source_file", pa.array(["a.jsonl"] * len(clicks)))
        self._append(root, newest_us, partial(bronze_rows, root, events))
        self.landed[root.name] += clicks

    def silence(self, span_us: int) -> None:
        """Time passes, and a heartbeat of each root says so."""
        self.now_us += span_us
        for root in self.roots:
            self._append(root, self.now_us, partial(heartbeat, root))

    def _append(self, root: Source, newest_us: int, rows: Callable[..., pa.Table]) -> None:
        ingestion = Ingestion(self.lake, root)
        before = ingestion.watermark()
        after: SourceWatermark = advance_watermark(before, newest_us, self.now_us)
        ingestion.commit_rows(before, after, rows(before, after))

    def follow(self, name: str, kill: int | None = None) -> None:
        """Ingest what a stream's parent has."""
        source = {"s": SESSIONS.name, **self.source_of}[name]
        self._do(lambda: ingest(self.lake, source_named(source)), kill)

    def run(self, name: str, kill: int | None = None) -> None:
        stream = stream_named(name)
        if has_waiting_rows(self.lake, stream):
            self._do(lambda: drain(self.engine, self.lake, stream), kill)

    def restate(self, name: str, from_us: int, until_us: int, kill: int | None = None) -> None:
        span = instant_of(from_us), instant_of(until_us)
        self._do(lambda: restate(self.engine, self.lake, stream_named(name), *span), kill)

    def rebuild(self, name: str, kill: int | None = None, until_us: int | None = None) -> None:
        until = None if until_us is None else instant_of(until_us)
        options = RebuildOptions(until=until)
        self._do(lambda: rebuild(self.engine, self.lake, stream_named(name), options), kill)

    def rewind(self, name: str, back_us: int, kill: int | None = None) -> None:
        complete_us = self.until_us(name)
        if complete_us is not None:
            self.rebuild(name, kill, complete_us - back_us)

    def deploy(self, factor: int) -> None:
        self.factor = factor
        self.put_files()

    def lose(self, name: str, kill: int | None = None) -> None:
        """The table and its record are gone, and made again by a rebuild."""
        if self.lake.is_delta_table(self.lake.table(name)):
            move_aside(self.lake, [f"tables/{name}"])
            self.rebuild(name, kill)

    def cascade(self) -> list[str]:
        """Follow and mend each stream in the order of the graph; those that were rebuilt."""
        rebuilt = []
        for name in self.source_of:
            for each in self.followed.get(name, ""):
                self.follow(each)
            self.run(name)
            if self.reasons(name) - {"upstream"} or not self.status(name).live_is_right:
                self.rebuild(name)
                self.run(name)
                rebuilt.append(name)
        return rebuilt

    def _do(self, job: Callable[[], object], kill: int | None) -> None:
        self.now_us += SECOND_US // 10
        with suppress(SettingsError, LakeError):
            if kill is None:
                job()
            else:
                killed_at(kill, job)

    # What is said, and what is so

    def status(self, name: str) -> StreamStatus:
        return stream_status(self.lake, stream_named(name))

    def reasons(self, name: str) -> set[str | None]:
        """Why the table is wrong, where it is."""
        return {span.reason for span in self.status(name).table_status.wrong}

    def files_with(self, text: str) -> set[str]:
        found = files_with(Path(self.lake.root), [text.encode()])
        return {file for file in found if "set_aside" not in file}

    def until_us(self, name: str) -> int | None:
        return self.status(name).table_status.until_us

    def table(self, name: str) -> Rows:
        path = self.lake.table(name)
        if not self.lake.is_delta_table(path):
            return Counter()
        rows = dataset_of(path).to_table(columns=["emitted_at", *self.columns[name]]).to_pylist()
        return Counter((micros_of(row.pop("emitted_at")), tuple(row.values())) for row in rows)

    def weights(self, name: str) -> list[int]:
        """Return the weights of the rows in a child's bronze."""
        path = self.lake.bronze(self.source_of[name])
        if not self.lake.is_delta_table(path):
            return []
        weights = dataset_of(path).to_table(columns=["weight"])["weight"].drop_null()
        return list(weights.to_pylist())

    def expected(self) -> dict[str, Rows]:
        of_a = sessions_of(self.clicks, self.factor)
        of_b = chains_of(of_a)
        return {"a": of_a, "b": of_b, "c": groups_of(of_b)}

    def check(self) -> None:
        """Raise WrongError where a table is said to be right and is not."""
        if (there := self._there()) == self.checked:
            return
        statuses = Statuses(self.lake)
        for name, rows in self.expected().items():
            self.check_table(statuses.of(stream_named(name)), rows)
        self.checked = there

    def _there(self) -> object:
        """Return the code and the files that statuses depend on."""
        files = (each for each in Path(self.lake.root).rglob("*") if "ops" not in each.parts)
        return self.factor, {each: each.stat().st_mtime_ns for each in files}

    def check_table(self, status: StreamStatus, *expected: Rows) -> None:
        """Raise WrongError where a table is said to be right and comes to none of these."""
        name = status.opened.name
        until_us = status.table_status.until_us
        if status.doubt is not None or until_us is None:
            return
        wrong = [(span.from_us, span.until_us) for span in status.table_status.wrong]

        def right(rows: Rows) -> Rows:
            known = [row for row in rows if row[0] < until_us]
            sure = (row for row in known if not any(a <= row[0] < z for a, z in wrong))
            return Counter({row: rows[row] for row in sure})

        have, wanted = right(self.table(name)), [right(rows) for rows in expected]
        if have not in wanted:
            said = f"{name} until {until_us}, wrong {wrong}"
            raise WrongError(f"{said}: lacks {wanted[0] - have}, has {have - wanted[0]}")
        self.compared += have.total()

    def settle(self) -> None:
        """In the end all is right, and complete until one instant."""
        self.silence(200 * SECOND_US)
        self.cascade()
        self.check()
        ends = {name: self.status(name) for name in self.source_of}
        for name, status in ends.items():
            if status.table_status.wrong or status.doubt or not status.live_is_right:
                raise WrongError(f"the end leaves {name} wrong: {status.text()}")
        if len({status.table_status.until_us for status in ends.values()}) > 1:
            raise WrongError("the streams are not complete until one instant")
        self.taken_back += sum(self.weights(name).count(-1) for name in [*self.source_of][1:])


World = TypeVar("World", bound=Cascade)


@contextmanager
def open_cascade(world: type[World] = Cascade) -> Iterator[World]:
    folder = fresh_folder()
    with (
        tempfile.TemporaryDirectory(dir=folder.parent) as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder.rmdir()
        made = world(Path(place))
        look_in(patch, made.files)
        patch.setattr(sources, "SOURCES", made.sources)
        register(patch, lambda: made.streams)
        set_clock(patch, made.now)
        made.put_files()
        try:
            yield made
        finally:
            for name in made.source_of:
                sys.modules.pop(f"include.streams.{name}", None)


ACTIONS = (
    *("land",) * 3,
    *("run",) * 2,
    *("follow",) * 2,
    *("restate", "rebuild", "cascade", "deploy", "rewind", "lose", "silence"),
)


def act(world: Cascade, draw: Random) -> str:
    """Do something by chance; what was done."""
    action, name = draw.choice(ACTIONS), draw.choice([*world.source_of])
    kill = draw.choice([None, None, *range(1, 8)])
    if action == "land":
        world.now_us += draw.choice([0, 1, 2, 4, 9]) * SECOND_US
        deep = [10, 20, 30, 60] if draw.random() < 0.35 else []
        ago_us = [s * SECOND_US for s in (0, 0, 0, 1, 2, *deep, *deep)]
        ago_us += [DELAY_US, DELAY_US + 1, 1, 500]
        clicks = [
            Click(draw.choice("uvw"), world.now_us - draw.choice(ago_us), draw.randrange(3))
            for _ in range(draw.randrange(1, 6))
        ]
        root = draw.choice(world.roots)
        world.land(*clicks, root=root)
        return f"land {root.name} {clicks}"
    if action == "restate":
        from_us = world.now_us - draw.randrange(40) * SECOND_US
        world.restate(name, from_us, from_us + draw.randrange(1, 20) * SECOND_US, kill)
    elif action == "deploy":
        if draw.random() < 0.3:
            world.deploy(draw.choice([3, 5]))
    elif action == "rewind":
        if draw.random() < 0.3:
            world.rewind(name, draw.randrange(1, 30) * SECOND_US - draw.choice([0, 1, 500]), kill)
    elif action == "lose":
        if draw.random() < 0.2:
            world.lose(name, kill)
    elif action == "silence":
        if draw.random() < 0.5:
            world.silence(draw.randrange(1, 10) * SECOND_US)
    elif action == "cascade":
        if draw.random() < 0.4:
            world.cascade()
    elif action == "follow":
        world.follow(draw.choice("".join(world.followed.values())), kill)
    else:
        getattr(world, action)(name, kill)
    return f"{action} {name} {kill}"


def simulate(seed: int, steps: int, of: type[World]) -> World:
    """A world after so many actions; WrongError names the seed."""
    draw, done = Random(seed), list[str]()
    with open_cascade(of) as world:
        try:
            for root in world.roots:
                world.land(Click("u", world.now_us, 1), root=root)
            for _ in range(steps):
                done.append(act(world, draw))
                world.check()
            world.settle()
        except Exception as error:
            raise WrongError(
                f"seed {seed}, step {len(done)}: {error}\n" + "\n".join(done)
            ) from error
        return world


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.seeds):
        world = simulate(seed, args.steps, Cascade)
        said = f"{world.compared:,} right rows, {world.taken_back:,} taken back"
        print(f"seed {seed}: {said}", flush=True)  # noqa: T201 (it is a command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
