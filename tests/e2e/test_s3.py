"""The project with its lake on S3: ingestion, jobs on Spark, two writers, and leases that expire."""

import json
import os
import signal as signals
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.ingest.ingest import ingest
from include.lake.lease import ObjectLease, hold_lease, lease_holder
from include.lake.paths import Lake, open_lake
from include.lake.table import transaction
from include.settings import PROJECT
from tests.deaths import Dying, KilledError
from tests.e2e.object_store import BUCKET, take_away
from tests.ingested import bronze_of, one_file_a_commit, quarantine_of, values_of
from tests.landed_files import Landing, signal
from tests.refused import refused

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("s3")]

FILES = {
    "a.jsonl": [signal(0, value=1), "no JSON", signal(3, value=2)],
    "b.jsonl": [signal(9, value=3)],
    "c.jsonl": [signal(5, value=4), signal(60, value=5)],
}
SOURCE = one_file_a_commit()


def land(lake: Lake, name: str, lines: list[str]) -> None:
    path = lake.path_in_filesystem(f"{lake.landing('signals')}/{name}")
    with lake.filesystem.open_output_stream(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def refused_rows(lake: Lake) -> list[tuple[str, int, str]]:
    return [(row["source_file"], row["row_number"], row["raw"]) for row in quarantine_of(lake)]


def test_hadoop_s_name_for_s3_is_the_lake_s_whichever_was_given(s3_lake):
    assert s3_lake.root.startswith(f"s3a://{BUCKET}/")
    assert open_lake(s3_lake.root).root == s3_lake.root


def test_an_address_without_tls_that_delta_rs_would_refuse_is_refused_at_once(s3_lake, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with refused("wrong_lake", subject="AWS_ENDPOINT_URL"):
        open_lake(s3_lake.root)


@pytest.mark.parametrize("dies_at", range(0, 12, 2))
def test_an_ingestion_that_dies_before_any_write_is_finished_by_the_next(
    s3_lake, lake, monkeypatch, dies_at
):
    landing = Landing(lake)
    for name, lines in FILES.items():
        land(s3_lake, name, lines)
        landing.add(name, lines)
    ingest(lake, SOURCE)
    with monkeypatch.context() as patch:
        Dying(patch, dies_at)
        with pytest.raises(KilledError):
            ingest(s3_lake, SOURCE)
    ingest(s3_lake, SOURCE)
    ingest(s3_lake, SOURCE)
    assert values_of(s3_lake) == values_of(lake)
    assert refused_rows(s3_lake) == refused_rows(lake)
    assert [row["event_time"] for row in bronze_of(s3_lake)]


def test_of_two_commits_of_one_batch_one_is_made(s3_lake):
    path = f"{s3_lake.root}/tables/x"
    write_deltalake(path, pa.table({"a": [0]}))
    opened = [DeltaTable(path) for _ in range(4)]

    def commit(table: DeltaTable) -> bool:
        once = CommitProperties(app_transactions=[transaction("a batch", 1)])
        try:
            write_deltalake(table, pa.table({"a": [1]}), mode="append", commit_properties=once)
        except Exception as error:  # noqa: BLE001 (whatever delta-rs says of it)
            return "Concurrent transaction" not in str(error)
        return True

    with ThreadPoolExecutor(len(opened)) as threads:
        assert sum(threads.map(commit, opened)) == 1
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2


def test_a_lease_keeps_others_out_and_names_its_holder_until_it_is_given_back(s3_lake):
    with hold_lease(s3_lake, "stream-x"):
        told = json.loads(lease_holder(s3_lake, "stream-x") or "{}")
        assert told["pid"] == os.getpid()
        with refused("lease_taken", subject="stream-x"), hold_lease(s3_lake, "stream-x"):
            pass
    assert lease_holder(s3_lake, "stream-x") is None
    with hold_lease(s3_lake, "stream-x"):
        pass


def test_of_many_that_want_a_free_lease_one_gets_it(s3_lake):
    leases = [ObjectLease(s3_lake.root, "stream-x") for _ in range(8)]
    with ThreadPoolExecutor(len(leases)) as threads:
        for _ in range(5):
            taken = list(threads.map(lambda lease: lease.take({}), leases))
            assert sum(taken) == 1
            leases[taken.index(True)].give_back()


# It stalls between its look at the table and its commit. What renews its lease may be faster than
# the commit when it goes on; "blind", it is not.
STALLED = """
import os, signal, sys
from include.lake import lease as leases
from include.lake.lease import hold_lease
from include.lake.paths import open_lake
from include.lake.table import Table
from include.ingest.ingest import ingest
from tests.ingested import one_file_a_commit

leases.RENEWALS = 1e-6 if sys.argv[2] == "blind" else 600
commit = Table.commit

def stall(*given, **named):
    Table.commit = commit
    os.kill(os.getpid(), signal.SIGSTOP)
    commit(*given, **named)

Table.commit = stall
lake = open_lake(sys.argv[1])
with hold_lease(lake, "ingest-signals"):
    ingest(lake, one_file_a_commit())
"""


@pytest.mark.parametrize("renewal", ["seeing", "blind"])
def test_a_stalled_ingestion_that_lost_its_lease_commits_nothing_when_it_goes_on(
    s3_lake, lake, renewal
):
    landing = Landing(lake)
    for name, lines in FILES.items():
        land(s3_lake, name, lines)
        landing.add(name, lines)
    ingest(lake, SOURCE)
    command = [sys.executable, "-c", STALLED, s3_lake.root, renewal]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as stalled:
        os.waitid(os.P_PID, stalled.pid, os.WSTOPPED)
        take_away(s3_lake, "ingest-signals")
        ingest(s3_lake, SOURCE)
        versions = {name: DeltaTable(path).version() for name, path in tables_of(s3_lake).items()}
        stalled.send_signal(signals.SIGCONT)
        said = stalled.communicate(timeout=60)[1]
    assert stalled.returncode == 1, said
    assert "LeaseLostError" in said or "(lease_lost)" in said
    assert values_of(s3_lake) == values_of(lake)
    assert refused_rows(s3_lake) == refused_rows(lake)
    found = {name: DeltaTable(path).version() for name, path in tables_of(s3_lake).items()}
    assert found == versions


def tables_of(lake: Lake) -> dict[str, str]:
    return {"bronze": lake.bronze("signals"), "quarantine": lake.quarantine("signals")}
