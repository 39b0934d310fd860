"""What Spark has written of an operator: which of it counts, and what is said of damage."""

import json
from pathlib import Path

import pytest

from include.checkpoint.state_operator import (
    METADATA,
    StateOperator,
    committed_operator,
    forget_begun_operator,
)
from include.lake.paths import LakeError


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    for folder in (METADATA, "commits"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def write(checkpoint: Path, number: int, *variables: str) -> None:
    """Of a run's first batch; Hadoop's checksum lies beside it."""
    properties = {"stateVariables": [{"stateName": name} for name in variables]}
    metadata = {
        "operatorInfo": {"operatorName": f"made by {number}"},
        "operatorPropertiesJson": json.dumps(properties),
    }
    (checkpoint / METADATA / str(number)).write_text(f"v2\n{json.dumps(metadata)}")
    (checkpoint / METADATA / f".{number}.crc").write_bytes(b"crc")


def commit(checkpoint: Path, *batches: int) -> None:
    for batch in batches:
        (checkpoint / "commits" / str(batch)).touch()


def test_before_the_first_commit_there_is_none(checkpoint, tmp_path):
    write(checkpoint, 0, "a")
    assert committed_operator(str(checkpoint)) is None
    assert committed_operator(str(tmp_path / "nothing")) is None


def test_it_is_that_of_the_run_in_which_a_batch_was_committed(checkpoint):
    write(checkpoint, 0, "a")
    write(checkpoint, 2, "a", "b")
    write(checkpoint, 4, "c")
    commit(checkpoint, 0, 1, 2, 3)
    assert committed_operator(str(checkpoint)) == StateOperator("made by 2", frozenset("ab"))
    assert committed_operator(str(checkpoint), 1) == StateOperator("made by 0", frozenset("a"))


def test_what_was_begun_and_not_committed_is_forgotten(checkpoint):
    write(checkpoint, 0, "a")
    write(checkpoint, 2, "b")
    commit(checkpoint, 0, 1)
    forget_begun_operator(str(checkpoint))
    # Spark cannot write a file beside which there is a checksum already.
    assert {path.name for path in (checkpoint / METADATA).iterdir()} == {"0", ".0.crc"}
    forget_begun_operator(str(checkpoint))
    forget_begun_operator(str(checkpoint / "nothing"))


def test_metadata_that_is_gone_or_damaged_is_an_error_that_says_what_to_do(checkpoint):
    commit(checkpoint, 0)
    with pytest.raises(LakeError, match=r"nothing in .* says what their state is: put .* back"):
        committed_operator(str(checkpoint))
    (checkpoint / METADATA / "0").write_text("v2\n{}")
    with pytest.raises(LakeError, match=r"v2/0 is not what Spark writes .*: put .* back"):
        committed_operator(str(checkpoint))
