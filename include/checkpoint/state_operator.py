"""What Spark has written down of a checkpoint's operator: its flavour, and what it stores."""

import json
from typing import NamedTuple

from pyarrow import fs

from include.lake.paths import LakeError, files_of

METADATA = "state/0/_metadata/v2"
NOT_UNDERSTOOD = (IndexError, KeyError, TypeError, ValueError)


class StateOperator(NamedTuple):
    """The operator as of one batch."""

    name: str  # Spark's
    variables: frozenset[str]


def planned_operator(checkpoint: str) -> StateOperator | None:
    """The operator of the newest batch that was begun in `checkpoint`; None before the first.

    LakeError when what Spark wrote of it is damaged.
    """
    return _as_of(files_of(checkpoint), checkpoint, None)


def committed_operator(checkpoint: str, batch_id: int | None = None) -> StateOperator | None:
    """The operator of batch `batch_id`, or of the newest that was committed."""
    files = files_of(checkpoint)
    if batch_id is None:
        batch_id = max(_numbers(files, "commits"), default=-1)
    return _as_of(files, checkpoint, batch_id)


def _as_of(files: fs.FileSystem, checkpoint: str, batch_id: int | None) -> StateOperator | None:
    written = [n for n in _numbers(files, METADATA) if batch_id is None or n <= batch_id]
    if not written:
        return None
    path = f"{METADATA}/{max(written)}"
    try:
        with files.open_input_file(path) as file:
            # Line 1 is the format's version.
            metadata = json.loads(bytes(file.read()).decode().split("\n", 1)[1])
        properties = json.loads(metadata["operatorPropertiesJson"])
        variables = frozenset(each["stateName"] for each in properties["stateVariables"])
        return StateOperator(metadata["operatorInfo"]["operatorName"], variables)
    except NOT_UNDERSTOOD as error:
        raise LakeError(
            f"{checkpoint}/{path} is not what Spark writes ({error!r}): put the checkpoint back "
            "from a copy"
        ) from error


def _numbers(files: fs.FileSystem, folder: str) -> list[int]:
    """The batches that a log of the checkpoint has files of."""
    infos = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [int(info.base_name) for info in infos if info.base_name.isdigit()]
