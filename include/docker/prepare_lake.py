"""The lake of a cluster: made when it is a folder, and shown to be writable, before Airflow starts."""

from textwrap import shorten
from uuid import uuid4

from pyarrow import ArrowException, fs

from include.lake.paths import REASON_CHARACTERS, Lake, LakeError
from include.registry import all_sources


def prepare_lake(root: str) -> Lake:
    """The lake at `root`, in which this process can write.

    A local one is made, with a landing folder for each source, so that files can be put there.
    LakeError, naming LAKE, when it cannot be.
    """
    lake = Lake(root.rstrip("/") or "/")
    try:
        if isinstance(lake.filesystem, fs.LocalFileSystem):
            make_folders(lake)
        write_and_delete(lake)
    except (OSError, ArrowException) as error:
        reason = shorten(str(error), REASON_CHARACTERS)
        raise LakeError(
            f"the lake LAKE={root} cannot be written: {reason}. It must be a folder of a volume "
            "that all of Airflow and Spark have, or an object store with credentials in the "
            "environment"
        ) from error
    return lake


def make_folders(lake: Lake) -> None:
    for source in all_sources():
        landing = lake.path_in_filesystem(lake.landing(source.name))
        lake.filesystem.create_dir(landing, recursive=True)


def write_and_delete(lake: Lake) -> None:
    """Only a write shows rights, quotas and read-only mounts."""
    # Hidden, so that a reader that lists the lake meanwhile passes over it.
    probe = lake.path_in_filesystem(f"{lake.root}/.probe-{uuid4()}")
    with lake.filesystem.open_output_stream(probe) as output:
        output.write(b"writable")
    lake.filesystem.delete_file(probe)
