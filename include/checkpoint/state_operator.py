"""What Spark has written down of a checkpoint's operator: its flavour, and what it stores."""

import json
from typing import NamedTuple

from pyarrow import fs

from include.lake.how_to_mend import how_to_mend
from include.lake.paths import LakeError, files_of

METADATA = "state/0/_metadata/v2"
NOT_UNDERSTOOD = (IndexError, KeyError, TypeError, ValueError)


class StateOperator(NamedTuple):
    """The operator as of one batch."""

    name: str  # Spark's
    variables: frozenset[str]


def committed_operator(checkpoint: str, batch_id: int | None = None) -> StateOperator | None:
    """The operator of batch `batch_id`, or of the newest that was committed; None before the first.

    LakeError when what Spark wrote of it is damaged, or gone.
    """
    files = files_of(checkpoint)
    committed = _numbers(files, "commits")
    if not committed:
        return None
    newest = max(committed) if batch_id is None else batch_id
    written = [number for number in _numbers(files, METADATA) if number <= newest]
    if not written:
        raise LakeError(
            f"{checkpoint} has committed batches, and nothing in {METADATA} says what their state "
            f"is: {how_to_mend(checkpoint)}"
        )
    return _read(files, checkpoint, max(written))


def forget_begun_operator(checkpoint: str) -> None:
    """Delete what batches that were begun and not committed have written of their operator.

    Spark writes it once a batch: what release 0.5 has begun and this one commits would be said to
    have none of the variables that it stores.
    """
    files = files_of(checkpoint)
    newest = max(_numbers(files, "commits"), default=-1)
    for number in _numbers(files, METADATA):
        if number > newest:
            # Where a checksum is left, Spark can write the file no more; so it goes first.
            for name in (f".{number}.crc", str(number)):
                _delete(files, f"{METADATA}/{name}")


def _read(files: fs.FileSystem, checkpoint: str, number: int) -> StateOperator:
    path = f"{METADATA}/{number}"
    try:
        with files.open_input_file(path) as file:
            # Line 1 is the format's version.
            metadata = json.loads(bytes(file.read()).decode().split("\n", 1)[1])
        properties = json.loads(metadata["operatorPropertiesJson"])
        variables = frozenset(each["stateName"] for each in properties["stateVariables"])
        return StateOperator(metadata["operatorInfo"]["operatorName"], variables)
    except NOT_UNDERSTOOD as error:
        raise LakeError(
            f"{checkpoint}/{path} is not what Spark writes ({error!r}): {how_to_mend(checkpoint)}"
        ) from error


def _delete(files: fs.FileSystem, path: str) -> None:
    if files.get_file_info(path).type is not fs.FileType.NotFound:
        files.delete_file(path)


def _numbers(files: fs.FileSystem, folder: str) -> list[int]:
    """The batches that a log of the checkpoint has files of."""
    infos = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [int(info.base_name) for info in infos if info.base_name.isdigit()]
