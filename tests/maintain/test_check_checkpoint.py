"""The findings of a check in sound and in broken checkpoints."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from include.lake.lease import LeaseTakenError, hold_lease, lease_holder
from include.lake.ops import read_ops
from include.maintain.check_checkpoint import check_checkpoint, format_check, record_check
from include.settings import Limits
from tests.maintain.checked import (
    STREAM,
    checksum_alone,
    detail,
    emptied,
    found,
    in_root,
    in_state,
    recorded_batch,
    snapshots_cut_off,
    without,
)
from tests.refused import commands_in
from tests.stream.spark_checkpoint import SparkCheckpoint


def everything_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_sound_checkpoint_has_no_findings(lake, made):
    result = check_checkpoint(lake, STREAM)
    assert found(result) == {}
    assert result.why_not_compact is not None


def never_begun(made: SparkCheckpoint) -> None:
    for name in ("offsets", "commits"):
        shutil.rmtree(made.root / name)


def only_planned(made: SparkCheckpoint) -> None:
    shutil.rmtree(made.root)
    made.planned = made.committed = -1
    made.plan()


def killed_within_a_batch(made: SparkCheckpoint) -> None:
    made.plan()
    made.write_states(count=1, snapshot=True)


UNREADABLE = {"checkpoint_unreadable": "error"}
UNCOMMITTED = {"uncommitted_batches": "warning"}
HARMS = {
    "made of nothing": (without(""), {}),
    "begun and killed": (only_planned, UNCOMMITTED),
    "killed within a batch": (killed_within_a_batch, UNCOMMITTED),
    "notes beside the logs": (in_root("notes.txt"), {}),
    "a log's copy": (in_root("offsets/3 (copy)"), {}),
    "an old checksum": (checksum_alone("commits/2x"), {}),
    "an unfinished write": (in_state(".3.zip.8a1f.TID7.tmp"), {}),
    "no metadata": (without("metadata"), UNREADABLE),
    "empty metadata": (emptied("metadata"), UNREADABLE),
    "no offsets": (without("offsets/4"), UNREADABLE),
    "no change log": (without("state/0/1/6.changelog"), UNREADABLE),
    "an empty change log": (emptied("state/0/1/6.changelog"), UNREADABLE),
    "no partition": (without("state/0/1"), UNREADABLE),
    "no state": (without("state"), UNREADABLE),
    "state, but no batch": (never_begun, UNREADABLE),
    "half a commit": (in_root("commits/5", b'v1\n{"next'), UNREADABLE),
    "an offset of other bytes": (in_root("offsets/5", b"\xff"), UNREADABLE),
    "odd metadata": (in_root("state/0/_metadata/v2/5", b"v2\n[]"), UNREADABLE),
    "no folder": (lambda made: (shutil.rmtree(made.root), made.root.write_text("")), UNREADABLE),
    # Spark begins with the one before it.
    "a damaged snapshot": (snapshots_cut_off(4), {}),
    "no snapshot left": (snapshots_cut_off(1, 4), UNREADABLE),
}


@pytest.mark.parametrize(("happened", "findings"), HARMS.values(), ids=HARMS)
def test_a_checkpoint_can_be_read_or_not_and_stays_as_it_is(lake, made, happened, findings):
    happened(made)
    before = everything_in(made.root)
    result = check_checkpoint(lake, STREAM)
    assert found(result) == findings
    assert result.why_not_compact is not None
    for finding in result.findings:
        wanted = ["rebuild user_counts --apply"] * (finding.severity == "error")
        assert commands_in(finding.action or "") == wanted
    assert everything_in(made.root) == before
    record_check(lake, result)
    assert read_ops(lake, "findings")["finding"].to_pylist() == list(found(result))
    assert all(name in format_check(result) for name in findings)


def test_a_checkpoint_older_than_what_was_written_under_it_is_an_error(lake, made):
    recorded_batch(lake, 5)
    assert found(check_checkpoint(lake, STREAM)) == {}
    recorded_batch(lake, 6)
    assert found(check_checkpoint(lake, STREAM)) == {"checkpoint_of_other_times": "error"}
    shutil.rmtree(made.root)
    assert found(check_checkpoint(lake, STREAM)) == {"checkpoint_of_other_times": "error"}


def test_while_a_job_writes_nothing_is_called_broken(lake, made):
    without("state/0/1/6.changelog")(made)
    name = f"stream-{STREAM.name}"
    assert lease_holder(lake, name) is None
    with hold_lease(lake, name):
        result = check_checkpoint(lake, replace(STREAM, limits=Limits(checkpoint_files=1)))
        assert found(result) == {"written_while_measured": "info"}
        assert result.why_not_compact is not None
        assert '"pid"' in detail(result, "written_while_measured")
        with pytest.raises(LeaseTakenError), hold_lease(lake, name):
            pass
    assert lease_holder(lake, name) is None
    assert found(check_checkpoint(lake, STREAM)) == UNREADABLE


def test_what_the_machine_refuses_is_no_finding_of_the_table(lake, made, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError("Kernel error\n  ↳ Too many open files (os error 24)")

    monkeypatch.setattr("include.maintain.check_checkpoint.status_of_run", refused)
    with pytest.raises(OSError, match="Too many open files"):
        check_checkpoint(lake, STREAM)
