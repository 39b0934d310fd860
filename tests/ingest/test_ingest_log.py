"""All of the ingest log is in bronze and quarantine, once; or it is said that it cannot be."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.ingest.ingest import ingest
from include.ingest.ingest_log import CHANGES, read_log
from include.ingest.parse_files import Parse, parsed_here
from include.ingest.reingest import reingest
from include.lake.errors import LakeError
from include.lake.paths import Lake
from tests.deaths import Dying, KilledError, MachineClock
from tests.ingested import bronze_of, quarantine_of
from tests.landed_files import START, Landing, signal
from tests.parsers import ON_SPARK, parser
from tests.refused import refused
from tests.simulator.damage import append_again
from tests.watermarks import HOUR, SIGNALS

pytestmark = pytest.mark.slow

TABLES = ("bronze", "quarantine", "ingest_log")
WRITES = 12  # of a run: 5 of a batch, 3 of a heartbeat, 4 of a row that is taken in again


def run(lake: Lake, mended: str | None = None, parse: Parse = parsed_here) -> None:
    """Ingestion of what has landed, and re-ingestion of the refused row of a file that is `mended`."""
    number = len([*Path(lake.landing("signals")).glob("*")])
    with pytest.MonkeyPatch.context() as patch:
        MachineClock(patch, now := START + number * HOUR)
        ingest(lake, SIGNALS, interval_end=now, parse=parse)
        ids = {row["source_file"]: row["quarantine_id"] for row in quarantine_of(lake)}
        reingest(lake, SIGNALS, {ids[mended]: signal(0)} if mended else {}, now)


def land(lake: Lake, number: int) -> None:
    Landing(lake).add(f"{number}.jsonl", [signal(number), "{", signal(number)])


def rows_of(number: int, mended: bool = False) -> Counter[tuple[str, str]]:
    name = f"{number}.jsonl"
    return Counter({(name, "event"): 2 + mended, (name, "mended" if mended else "open"): 1})


def rows_in(lake: Lake) -> Counter[tuple[str, str]]:
    events = (row["source_file"] for row in bronze_of(lake) if not row["is_heartbeat"])
    found = [(name.split("#")[0], "event") for name in events]
    for row in quarantine_of(lake):
        found.append((row["source_file"], "mended" if row["resolved_at"] else "open"))
    return Counter(found)


def path_of(lake: Lake, table: str) -> Path:
    return Path(lake.root, table, "signals")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after two runs, which knows the versions of its tables after each; a third file waits."""
    lake, versions = Lake(str(tmp_path_factory.mktemp("lake"))), []
    for number in range(2):
        land(lake, number)
        run(lake)
        versions.append({t: DeltaTable(path_of(lake, t)).version() for t in TABLES})
    Path(lake.root, "versions").write_text(json.dumps(versions))
    land(lake, 2)
    return lake


def tidy_up(lake: Lake) -> None:
    for table in TABLES:
        DeltaTable(path_of(lake, table)).optimize.compact()
        DeltaTable(path_of(lake, table)).vacuum(dry_run=False)
        retained = {"delta.logRetentionDuration": "interval 9 days"}
        DeltaTable(path_of(lake, table)).alter.set_table_properties(retained)


def unstage(lake: Lake) -> None:
    """Delete the files that no commit has added."""
    for path in (path_of(lake, table) for table in TABLES):
        known = {Path(uri).name for uri in DeltaTable(path).file_uris()}
        for file in path.rglob("*.parquet"):
            if file.name not in known:
                file.unlink()


def older(table: str, runs: int) -> Callable[[Lake], None]:
    """Its commits of the newest runs are not there any more; the dead one is one."""

    def harm(lake: Lake) -> None:
        retained = json.loads(Path(lake.root, "versions").read_text())[2 - runs][table]
        for commit in (path_of(lake, table) / "_delta_log").glob("*.json"):
            if int(commit.stem) > retained:
                commit.unlink()

    return harm


EITHER = "equal or of_other_times"
HARMS: dict[str, tuple[Callable[[Lake], object], str]] = {
    "nothing": (lambda lake: None, "equal"),
    "landing is garbage": (lambda lake: Landing(lake).add("2.jsonl", ["?"]), "equal"),
    "landing is empty": (lambda lake: shutil.rmtree(lake.landing("signals")), "equal"),
    "tidied up": (tidy_up, "equal"),
    **{f"older bronze {n}": (older("bronze", n), "equal") for n in (1, 2)},
    # A merge is not done again: its rows are deleted once they are in the table.
    **{f"older quarantine {n}": (older("quarantine", n), EITHER) for n in (1, 2)},
    "unfinished files are gone": (unstage, EITHER),
    "older log 1": (older("ingest_log", 1), EITHER),
    "older log 2": (older("ingest_log", 2), "of_other_times"),
    "no log": (lambda lake: shutil.rmtree(path_of(lake, "ingest_log")), "of_other_times"),
}


# Of a file that was not taken, behind its harm.
UNTAKEN = {
    "landing is garbage": Counter({("2.jsonl", "open"): 1}),
    "landing is empty": Counter[tuple[str, str]](),
}


@pytest.mark.parametrize(
    ("died", "harm"),
    [
        pytest.param(died, harm, marks=() if (died + number) % 3 == 0 else pytest.mark.full)
        for died in range(WRITES + 1)
        for number, harm in enumerate(HARMS)
    ],
)
def test_what_was_logged_is_there_once_or_the_loss_is_said(
    template: Lake, tmp_path: Path, died: int, harm: str
):
    die_and_harm(Lake(str(shutil.copytree(template.root, tmp_path / "lake"))), died, harm)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("died", range(6))
def test_what_was_logged_by_spark_is_there_once(
    request: pytest.FixtureRequest, template: Lake, tmp_path: Path, died: int
):
    lake = Lake(str(shutil.copytree(template.root, tmp_path / "lake")))
    die_and_harm(lake, died, "landing is garbage", parser(request, ON_SPARK))


def die_and_harm(lake: Lake, died: int, harm: str, parse: Parse = parsed_here) -> None:
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        Dying(patch, died)
        run(lake, "0.jsonl", parse)
    logged = read_log(lake, "signals")
    assert logged is not None
    is_mended = any(str(path).startswith(CHANGES) for path in logged.rows["path"].to_pylist())
    is_taken = "2.jsonl" in logged.done().names
    do_harm, outcomes = HARMS[harm]
    do_harm(lake)
    try:
        run(lake)
    except LakeError as error:
        outcome = str(error.code)
    else:
        outcome = "equal"
        third = rows_of(2) if is_taken else UNTAKEN.get(harm, rows_of(2))
        assert rows_in(lake) == rows_of(0, is_mended) + rows_of(1) + third
    assert outcome in outcomes


# Others


@pytest.mark.parametrize("overtaken", range(WRITES))
def test_two_runs_at_once_take_each_row_once(template: Lake, tmp_path: Path, overtaken: int):
    lake = Lake(str(shutil.copytree(template.root, tmp_path / "lake")))
    with pytest.MonkeyPatch.context() as patch:
        Dying(patch, overtaken, lambda: run(lake, "1.jsonl"))
        run(lake, "0.jsonl")
    assert rows_in(lake) == rows_of(0, True) + rows_of(1, True) + rows_of(2)


@pytest.mark.parametrize("went_on", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_another_life_of_the_lake_is_refused(
    template: Lake, tmp_path: Path, table: str, went_on: tuple[bool, bool]
):
    lives = [Lake(str(shutil.copytree(template.root, tmp_path / name))) for name in "ab"]
    for lake, goes_on in zip(lives, went_on, strict=True):
        if goes_on:
            run(lake)
    here, there = (path_of(lake, table) for lake in lives)
    shutil.rmtree(here)
    shutil.copytree(there, here)
    with refused("of_other_times"):
        run(lives[0])


@pytest.mark.parametrize("table", TABLES)
def test_what_others_change_is_refused(template: Lake, tmp_path: Path, table: str):
    """Harm each table by one commit; tests/lake/test_table.py tries all that others may do to one."""
    lake = Lake(str(shutil.copytree(template.root, tmp_path / "lake")))
    append_again(path_of(lake, table))
    with refused("of_other_times"):
        run(lake)
