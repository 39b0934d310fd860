"""Approvals of plans, which alone of a plan are stored: `approvals/<plan>` in the lake, one file each.

With DEPLOY=approve in the environment no code runs that no approved plan has.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyarrow import fs

from include.lake.errors import SettingsError
from include.lake.paths import Lake
from include.settings import APPROVE, DEPLOY
from include.stream.manifest import code_of
from include.stream.open_stream import OpenStream

PLAN = "./stateful plan"
Approved = Mapping[str, int]  # of each step's key as JSON, the rows to read


def read_approval(lake: Lake, plan_id: str) -> Approved | None:
    """Read an approval; None where there is none, or one that was cut off."""
    try:
        return dict(json.loads(lake.read(lake.approval(plan_id))))
    except (FileNotFoundError, ValueError):
        return None


def write_approval(lake: Lake, plan_id: str, approved: Approved) -> None:
    """Store an approval."""
    path = lake.approval(plan_id)
    lake.filesystem.create_dir(lake.path_in_filesystem(path.rpartition("/")[0]), recursive=True)
    lake.write(path, json.dumps(dict(approved), indent=1).encode())


@contextmanager
def approved_only() -> Iterator[None]:
    """Have the jobs of the body refuse code that no approved plan has: the folder may change."""
    before = os.environ.get(DEPLOY, "")
    os.environ[DEPLOY] = APPROVE
    try:
        yield
    finally:
        os.environ[DEPLOY] = before


def refuse_unapproved(opened: OpenStream, is_run: bool) -> None:
    """Raise SettingsError for code that is new and that no approved plan has.

    A run goes on with the state, so it does not begin with new code before that is rebuilt.
    """
    own, code = opened.record.own, code_of(opened.identity.code)
    if own is not None and code_of(own.codes[-1]) == code:
        return
    if (own is not None and is_run) or not _is_approved(opened, code):
        raise SettingsError(
            f"the code of {opened.name} is new, and {DEPLOY}={APPROVE}: it waits for its plan to be "
            "approved and applied",
            code="code_changed",
            subject=opened.name,
            command=PLAN,
        )


def _is_approved(opened: OpenStream, code: str) -> bool:
    lake = opened.lake
    folder = fs.FileSelector(lake.path_in_filesystem(lake.approval("")), allow_not_found=True)
    names = [found.base_name for found in lake.filesystem.get_file_info(folder)]
    steps = (json.loads(key) for name in names for key in read_approval(lake, name) or ())
    return any((stream, code_of(of or "")) == (opened.name, code) for stream, _, of, _ in steps)
