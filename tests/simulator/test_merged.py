"""Several sources in one fold: two that land and the table of a stream, merged; an oracle of loops over all rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from include.amend.erase_rows import erased_key
from include.connectors import Merged
from include.fold.admission import instant_of, micros_of
from include.ingest import merged
from include.ingest.ingest import ingest, why_not_ingest
from include.ingest.merged import Input
from include.ingest.source_connector import move_source_aside
from include.ingest.splits import ConnectorError
from include.ingest.watermark import Groups
from include.lake.delta_log import dataset_of
from include.registry import source_named
from include.settings import Source
from include.stream.deploy_plan import make_plan
from spark_jobs.erase_key import erase
from spark_jobs.set_watermark import set_watermark
from tests.declared import put_file
from tests.simulator.cascade import (
    COLUMNS,
    DELAY_US,
    GAP_US,
    HEAD,
    ROOT,
    SECOND_US,
    SESSIONS,
    SOURCE_OF,
    A,
    Cascade,
    Click,
    Rows,
    WrongError,
    field_of,
    open_cascade,
    sessions_of,
    simulate,
)
from tests.simulator.world import Begun
from tests.simulator.writes import killed_at

pytestmark = pytest.mark.slow

M = (
    HEAD.format(name="Merged")
    + f"""
GAP_US = {GAP_US}

class Any(NamedTuple):
    user: str
    event_time_us: int
    input: str
    v: int | None
    n: int | None

class Open(NamedTuple):
    last: int
    k: int
    h: int

class Seen(NamedTuple):
    user: str
    k: int
    h: int

def merge(user, events, state):
    known = state.getOption
    for event in events:
        at = event.event_time_us
        if known is not None and at - known.last >= GAP_US:
            yield Seen(user, -known.k, known.h)
            known = None
        k, h = (known.k, known.h) if known else (0, 1)
        h = (h * 31 + len(event.input) * 7 + (event.v or 0) * 3 + (event.n or 0)) % 10007
        known = Open(at, k + 1, h)
        yield Seen(user, known.k, h)
        state.update(known)
        state.setTimeoutTimestamp(timestampUs=at + GAP_US)
    if state.hasTimedOut:
        yield Seen(user, -state.get.k, state.get.h)
        state.remove()

FOLD = flat_map_groups_with_state(
    merge, key="user", event=Any, state=Open, output=Seen, output_mode="append",
    timeout="EventTimeTimeout")
COMMENTS = {{name: "Of a merge" for name in Seen._fields}}
"""
)
ORDERS_DELAY_US = 2 * SECOND_US
ORDERS = Source(
    name="orders",
    time_field="at",
    comment="What shops send",
    fields=(field_of("user", "string"), field_of("v", "bigint")),
)
IDLE_US = 20 * SECOND_US


def of_micros(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def merged_source(idle_us: int = IDLE_US) -> Source:
    delays = {"orders": ORDERS_DELAY_US, "clicks": DELAY_US, "from_a": 0}
    return Source(
        name="all_of",
        comment="All",
        connector=Merged(**{name: of_micros(us) for name, us in delays.items()}),
        idle_after=of_micros(idle_us),
    )


def merge_of(rows: list[tuple[str, int, str, int | None, int | None]]) -> Rows:
    """The oracle of M: sorted loops from nothing."""
    out: Rows = Counter()
    for user in {row[0] for row in rows}:
        own = [row for row in rows if row[0] == user]
        last, k, h = None, 0, 1
        nulls_first = {row: tuple(-1 if of is None else of for of in row) for row in own}
        for _, at, name, v, n in sorted(own, key=nulls_first.__getitem__):
            if last is not None and at - last >= GAP_US:
                out[last + GAP_US, (user, -k, h)] += 1
                k, h = 0, 1
            last, k, h = at, k + 1, (h * 31 + len(name) * 7 + (v or 0) * 3 + (n or 0)) % 10007
            out[at, (user, k, h)] += 1
        if last is not None:
            out[last + GAP_US, (user, -k, h)] += 1
    return out


class Merging(Cascade):
    """The first stream of a chain; its table, its source and another one, merged into `m`."""

    source_of: Mapping[str, str] = {"a": SOURCE_OF["a"], "m": "all_of"}
    columns: Mapping[str, tuple[str, ...]] = {"a": COLUMNS["a"], "m": ("user", "k", "h")}
    sources = (ROOT, ORDERS, SESSIONS, merged_source())
    followed: Mapping[str, str] = {"m": "sm"}

    def put_files(self) -> None:
        for name, text in {"a": A.format(factor=self.factor), "m": M}.items():
            put_file(self.files / f"{name}.py", text, self.streams[name])

    def expected(self) -> dict[str, Rows]:
        of_a = sessions_of(self.clicks, self.factor)
        rows: list[Any] = [(v[0], at, "from_a", None, v[2]) for at, v in of_a.elements()]
        for name in ("orders", "clicks"):
            rows += [(c.user, c.time_us, name, c.v, None) for c in self.landed[name]]
        return {"a": of_a, "m": merge_of(rows)}

    def late(self, source: str, delay_us: int = 0) -> Counter[Any]:
        """The rows of bronze that are late, as (input, user, time, v)."""
        if not self.lake.is_delta_table(path := self.lake.bronze(source)):
            return Counter()
        late, found = of_micros(delay_us), Counter[Any]()
        for row in dataset_of(path).to_table().to_pylist():
            before = row["watermark_before"]
            if not row["is_heartbeat"] and before and row["event_time"] <= before - late:
                found[
                    row.get("input", source), row["user"], micros_of(row["event_time"]), row["v"]
                ] += 1
        return found

    def check_late(self) -> None:
        """Raise WrongError where a row is late though its input, which was never idle, had it in time."""
        allowed = self.late("orders", ORDERS_DELAY_US) + self.late("clicks", DELAY_US)
        found = Counter({of: n for of, n in self.late("all_of").items() if of[0] != "from_a"})
        if found - allowed:
            raise WrongError(f"late in the merged source alone: {found - allowed}")


class NeverIdle(Merging):
    sources = (ROOT, ORDERS, SESSIONS, merged_source(10_000 * SECOND_US))

    def check(self) -> None:
        super().check()
        self.check_late()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """Some rows of each input, all taken, all right."""
    with open_cascade(Merging) as made:
        for number in range(4):
            made.now_us += 6 * SECOND_US
            for root, ago in ((ROOT, 0), (ORDERS, 0), (ROOT, 1)):
                rows = [Click(user, made.now_us - ago * SECOND_US, number) for user in "uv"]
                made.land(*rows, root=root)
            made.cascade()
        made.check()
        assert made.table("m")
        return made.copied(tmp_path_factory.mktemp("begun"))


@pytest.fixture
def new() -> Iterator[Merging]:
    with open_cascade(Merging) as made:
        yield made


@pytest.fixture
def world(new: Merging, begun: Begun) -> Merging:
    new.go_on(begun)
    return new


@pytest.mark.parametrize("of", [Merging, NeverIdle])
def test_wherever_a_status_says_right_a_merged_table_is_what_loops_over_all_rows_come_to(
    of: type[Merging],
):
    simulate(1, 15, of)


def behind(made: Merging) -> str | None:
    source = source_named("all_of")
    return why_not_ingest(made.lake, source, None, made.now())


def test_nothing_is_taken_before_each_input_has_come(new: Merging):
    new.land(Click("u", new.now_us, 1))
    new.run("a")
    for name in "sm":
        new.follow(name)
    assert new.until_us("m") is None
    assert "orders" in str(behind(new))
    new.land(Click("u", new.now_us, 1), root=ORDERS)
    new.settle()


def test_an_idle_input_is_not_waited_for_and_late_where_it_wakes_behind(world: Merging):
    silent_us = world.until_us("m")
    for _ in range(4):
        world.now_us += 10 * SECOND_US
        world.land(Click("u", world.now_us, 1))
        world.cascade()
    until_us = world.until_us("m")
    assert silent_us is not None
    assert until_us is not None
    assert until_us > silent_us + 10 * SECOND_US
    world.check()
    world.land(Click("u", until_us - SECOND_US, 2), root=ORDERS)
    assert world.reasons("m") == {"upstream"}  # it is in bronze of orders, and not taken yet
    assert world.status("m").upstream is not None
    assert [each.state for each in make_plan(world.lake).streams if each.stream == "m"] == [
        "upstream"
    ]
    world.follow("m")
    assert world.reasons("m") == {"late rows"}
    assert make_plan(world.lake).exit_code == 4
    world.check()
    assert world.until_us("m") == until_us  # it holds the watermark where it is
    world.settle()


def test_an_input_that_was_made_anew_is_refused_until_the_merged_source_is(world: Merging):
    move_source_aside(world.lake, source_named("from_a"))
    ingest(world.lake, source_named("from_a"))
    assert world.status("m").upstream is not None
    with pytest.raises(ConnectorError) as error:
        ingest(world.lake, source_named("all_of"))
    assert "--from-scratch" in str(error.value.command)
    move_source_aside(world.lake, source_named("all_of"))
    world.follow("m")
    world.rebuild("m")
    world.settle()


def test_a_large_step_is_cut_by_dates_and_goes_on_where_it_died(new: Merging):
    for _ in range(4):
        new.now_us += 86_400 * SECOND_US
        for root in (ROOT, ORDERS):
            new.land(Click("u", new.now_us, 1), root=root)
    new.run("a")
    new.follow("s")
    object.__setattr__(new.sources[-1], "commit_bytes", 1)
    try:
        new.follow("m", kill=4)
        new.check()
        assert behind(new) is None
        new.follow("m")
    finally:
        object.__setattr__(new.sources[-1], "commit_bytes", 2**26)
    new.check()
    instants = dataset_of(new.lake.bronze("all_of")).to_table()["ingested_at"].to_pylist()
    assert len({*instants}) >= 3
    new.settle()


# Amendments of one input

ERASED = "qzerinzq"


def test_an_erasure_in_one_input_reaches_the_merged_source_and_its_stream(world: Merging):
    kept = [*world.landed["orders"]]
    world.land(*[Click(ERASED, world.now_us - s * SECOND_US, 1) for s in (0, 1, 12)], root=ORDERS)
    world.silence(10 * SECOND_US)
    world.cascade()
    assert world.files_with(ERASED)

    def erase_erin() -> None:
        erase(world.engine, world.lake, erased_key("orders", f"user={ERASED}"))

    assert killed_at(30, erase_erin)
    world.follow("m")
    erase_erin()
    assert world.files_with(ERASED) == set()
    world.landed["orders"] = kept
    world.check()
    world.run("m")
    assert not world.reasons("m")
    world.settle()


def test_a_watermark_set_back_in_one_input_is_so_behind_it(world: Merging):
    right_us = world.now_us
    world.now_us += 10_000 * SECOND_US  # a machine's clock was ahead
    world.silence(0)
    world.cascade()
    world.now_us = right_us + SECOND_US
    back = instant_of(right_us - 5 * SECOND_US)
    set_watermark(world.engine, world.lake, ROOT, back)
    world.check()
    until_us = world.until_us("m")
    assert until_us is not None
    assert until_us <= right_us
    world.settle()


# Bugs that the sequences are to find


def _none_late(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Input.rows

    def on_time(self: Input, *span: Any, after_us: int | None = None) -> Any:
        return made(self, *span, after_us=None if after_us is None else 2**60)

    monkeypatch.setattr(Input, "rows", on_time)


def _no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "net", lambda rows: rows.drop_columns("weight"))


def _most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watermark of the input that has come furthest."""
    made = Groups.awake
    monkeypatch.setattr(Groups, "awake", lambda self: made(self)[-1:])


def _late(made: Merging) -> None:
    for at_us, root in (
        (made.now_us - 13 * SECOND_US, ROOT),
        (made.now_us - 14 * SECOND_US, ORDERS),
    ):
        made.land(Click("u", at_us, 2), root=root)
        made.run("a")
        made.check()
        for name in "sm":
            made.follow(name)
        made.check()
        made.cascade()
        made.check()
    made.settle()


def _restated(made: Merging) -> None:
    """Rebuild an input's stream, whose table takes back rows that the merged source has not taken yet."""
    made.now_us += 9 * SECOND_US
    made.land(Click("u", made.now_us, 1))
    made.run("a")
    made.follow("s")  # orders hold the merged source back
    made.land(Click("u", made.now_us - 9 * SECOND_US, 2))
    made.rebuild("a")
    made.follow("s")
    made.land(Click("u", made.now_us, 1), root=ORDERS)
    made.cascade()
    made.check()
    made.settle()


def _slow(made: Merging) -> None:
    made.now_us += 9 * SECOND_US
    made.land(Click("u", made.now_us, 1))
    made.cascade()
    made.land(Click("u", made.now_us - SECOND_US, 1), root=ORDERS)
    made.cascade()
    made.check_late()
    made.settle()


SEQUENCES = {each.__name__: each for each in (_late, _restated, _slow)}
PLANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Merging], None]]] = {
    "late rows left out": (_none_late, _late),
    "no net": (_no_net, _restated),
    "the most in place of the least": (_most, _slow),
}


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_what_finds_planted_bugs_finds_none_without_them(world: Merging, sequence: str):
    SEQUENCES[sequence](world)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(world: Merging, monkeypatch: pytest.MonkeyPatch, plant: str):
    do, sequence = PLANTS[plant]
    do(monkeypatch)
    with pytest.raises(WrongError):
        sequence(world)
