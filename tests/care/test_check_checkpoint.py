"""What a check finds in checkpoints that are as they should be, and in such as are not."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from include.care.check_checkpoint import check_checkpoint, format_check, record_check
from include.checkpoint.checkpoint_files import read_snapshots
from include.lake.lease import LeaseTakenError, hold_lease, lease_holder
from include.lake.ops import read_ops
from include.settings import Limits
from tests.care.checked import (
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
from tests.checkpoint.spark_checkpoint import SparkCheckpoint, remove


def everything_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_sound_checkpoint_has_no_findings(lake, made):
    result = check_checkpoint(lake, STREAM)
    assert found(result) == {}
    assert not result.compaction.needed


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


BAD = {
    "made of nothing": (without(""), {"no_checkpoint": "info"}),
    "begun and killed": (only_planned, {"uncommitted_batches": "warning"}),
    "killed within a batch": (killed_within_a_batch, {"uncommitted_batches": "warning"}),
    "notes beside the logs": (in_root("notes.txt"), {"unknown_files": "warning"}),
    "a log's copy": (in_root("offsets/3 (copy)"), {"unknown_files": "warning"}),
    "a folder in state": (in_root("state/old/0/1.zip"), {"unknown_files": "warning"}),
    "a change log's copy": (in_state("3 (copy).changelog"), {"unknown_files": "warning"}),
    "an old checksum": (checksum_alone("commits/2x"), {"left_over_files": "info"}),
    "the next offsets' checksum": (checksum_alone("offsets/6"), {"blocking_files": "error"}),
    "the next commit's checksum": (checksum_alone("commits/6"), {"blocking_files": "error"}),
    "a checksum in the state": (checksum_alone("state/0/0/9.zip"), {"left_over_files": "info"}),
    "an unfinished write": (in_state(".3.zip.8a1f.TID7.tmp"), {"left_over_files": "info"}),
    "no metadata": (without("metadata"), {"missing_files": "error"}),
    "empty metadata": (emptied("metadata"), {"unreadable_files": "error"}),
    "no offsets": (without("offsets/4"), {"missing_files": "error"}),
    "no change log": (without("state/0/1/6.changelog"), {"missing_files": "error"}),
    "an empty change log": (emptied("state/0/1/6.changelog"), {"missing_files": "error"}),
    "no partition": (without("state/0/1"), {"missing_files": "error"}),
    "no state": (without("state"), {"missing_files": "error"}),
    "state, but no batch": (never_begun, {"missing_files": "error"}),
    "half a commit": (in_root("commits/5", b'v1\n{"next'), {"unreadable_files": "error"}),
    "an offset of other bytes": (in_root("offsets/5", b"\xff"), {"unreadable_files": "error"}),
    "odd metadata": (in_root("state/0/_metadata/v2/5", b"v2\n[]"), {"unreadable_files": "error"}),
    "a damaged snapshot": (snapshots_cut_off(4), {"damaged_snapshot": "warning"}),
    "no snapshot left": (
        snapshots_cut_off(1, 4),
        {"missing_files": "error", "damaged_snapshot": "warning"},
    ),
}


@pytest.mark.parametrize(("happened", "findings"), BAD.values(), ids=BAD)
def test_a_bad_checkpoint_is_a_finding_and_stays_as_it_is(lake, made, happened, findings):
    happened(made)
    before = everything_in(made.root)
    result = check_checkpoint(lake, STREAM)
    assert found(result) == findings
    assert not result.compaction.needed
    assert all(finding.action for finding in result.findings)
    assert everything_in(made.root) == before
    record_check(lake, result)
    assert read_ops(lake, "findings")["finding"].to_pylist() == list(found(result))
    assert all(name in format_check(result) for name in findings)


@pytest.mark.parametrize(
    ("happened", "named"),
    [
        (without("state/0/1/6.changelog"), "state/0/1/6.changelog"),
        (without("state/0/1/4.zip"), None),  # older ones lead there
        (snapshots_cut_off(1, 4), "state/0/0/4.zip"),  # no change log of version 1 ever was
        (without("offsets/4"), "offsets/4"),
        (without("state"), "state"),
    ],
)
def test_the_file_that_would_mend_it_is_named(lake, made, happened, named):
    happened(made)
    assert check_checkpoint(lake, STREAM).size.missing == ((named,) if named else ())


def test_the_first_files_are_named(lake, made):
    for number in range(5):
        in_state(f"note {number}\n")(made)
    text = detail(check_checkpoint(lake, STREAM), "unknown_files")
    assert re.findall(r"state/0/1/note (\d)\?", text) == ["0", "1", "2"]


def test_a_checkpoint_that_is_no_folder_is_unreadable(lake, made):
    shutil.rmtree(made.root)
    made.root.write_text("not a checkpoint")
    result = check_checkpoint(lake, STREAM)
    assert found(result) == {"checkpoint_unreadable": "error"}
    record_check(lake, result)
    assert read_ops(lake, "checkpoint_sizes").num_rows == 0
    assert not result.compaction.needed


def test_a_checkpoint_older_than_what_was_written_under_it_is_an_error(lake, made):
    recorded_batch(lake, 5)
    assert found(check_checkpoint(lake, STREAM)) == {}
    recorded_batch(lake, 6)
    assert found(check_checkpoint(lake, STREAM)) == {"checkpoint_rewound": "error"}
    shutil.rmtree(made.root)
    assert found(check_checkpoint(lake, STREAM)) == {"checkpoint_missing": "error"}


def test_while_a_job_writes_nothing_is_called_broken(lake, made):
    without("state/0/1/6.changelog")(made)
    checksum_alone("offsets/6")(made)
    name = f"stream-{STREAM.name}"
    assert lease_holder(lake, name) is None
    with hold_lease(lake, name):
        result = check_checkpoint(lake, replace(STREAM, limits=Limits(checkpoint_files=1)))
        assert found(result) == {"checkpoint_files": "warning", "written_while_measured": "info"}
        assert not result.compaction.needed
        assert '"pid"' in detail(result, "written_while_measured")
        with pytest.raises(LeaseTakenError), hold_lease(lake, name):
            pass
    assert lease_holder(lake, name) is None
    assert "blocking_files" in found(check_checkpoint(lake, STREAM))


def test_what_the_machine_refuses_is_no_finding_of_the_table(lake, made, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError("Kernel error\n  ↳ Too many open files (os error 24)")

    monkeypatch.setattr("include.care.check_checkpoint.find_coverage", refused)
    with pytest.raises(OSError, match="Too many open files"):
        check_checkpoint(lake, STREAM)


def test_asking_for_a_lease_leaves_nothing_behind(lake):
    assert lease_holder(lake, "stream-user_counts") is None
    assert list(Path(lake.root).iterdir()) == []


def test_a_damaged_snapshot_keeps_garbage_from_being_deleted(lake, made, monkeypatch):
    monkeypatch.setattr("include.care.check_checkpoint.GARBAGE_FLOOR_BYTES", 0)
    stream = replace(STREAM, limits=Limits(garbage_share=0.0))
    made.batch(snapshot=True)
    assert check_checkpoint(lake, stream).compaction.needed
    snapshots_cut_off(4)(made)
    made.batch(snapshot=True)
    result = check_checkpoint(lake, stream)
    assert result.size.garbage_bytes
    assert not result.compaction.needed


def test_the_worst_comes_first(lake, made):
    in_root("notes.txt")(made)
    in_state(".3.zip.8a1f.tmp")(made)
    without("metadata")(made)
    severities = list(found(check_checkpoint(lake, STREAM)).values())
    assert severities == ["error", "warning", "info"]


def test_a_snapshot_that_vanishes_after_the_listing_is_damaged(lake, made):
    path = "state/0/0/4.zip"
    remove(made.root / path)
    contents = read_snapshots(lake, lake.checkpoint(STREAM.name, 1), [path])
    assert "vanished" in (contents[path].fault or "")
