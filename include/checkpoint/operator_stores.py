"""Which state stores an operator has, and in how many partitions, as its first batch wrote."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from include.checkpoint.checkpoint_files import CheckpointFile
from include.lake.paths import Lake

# `metadata` is the older format, of operators whose state never gets another schema.
OPERATOR_METADATA = re.compile(r"state/(\d+)/_metadata/(?:v2/(\d+)|metadata)")
NOT_UNDERSTOOD = (IndexError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class OperatorStores:
    """The partitions of each store by its name. With a `fault` in its file, nothing is known."""

    partitions: Mapping[str, int]
    path: str
    fault: str | None = None


def read_operators(
    lake: Lake, checkpoint: str, files: Sequence[CheckpointFile]
) -> dict[int, OperatorStores]:
    """What each operator's newest metadata says, by the operator's id."""
    newest: dict[int, tuple[int, str]] = {}
    for file in files:
        found = OPERATOR_METADATA.fullmatch(file.path)
        if found:
            operator, batch = int(found[1]), int(found[2] or 0)
            newest[operator] = max(newest.get(operator, (-1, "")), (batch, file.path))
    return {operator: _read(lake, checkpoint, path) for operator, (_, path) in newest.items()}


def _read(lake: Lake, checkpoint: str, path: str) -> OperatorStores:
    try:
        with lake.filesystem.open_input_file(
            lake.path_in_filesystem(f"{checkpoint}/{path}")
        ) as file:
            # Line 1 is the format's version.
            metadata = json.loads(bytes(file.read()).decode().split("\n", 1)[1])
        stores = {
            str(store["storeName"]): int(store["numPartitions"])
            for store in metadata["stateStoreInfo"]
        }
    except FileNotFoundError as error:  # since it was listed. Any other says nothing of the file
        return OperatorStores({}, path, f"it cannot be read: {error}")
    except NOT_UNDERSTOOD as error:
        return OperatorStores({}, path, f"it is not what Spark writes: {error!r}")
    return OperatorStores(stores, path)
