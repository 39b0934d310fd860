"""What `init: true` and a container's own process list do for a service, as one small process.

    python -m tests.rehearsal.container_init PID_FILE FOLDER COMMAND...

Runs the command in the folder, passes signals on to it alone, and ends with it: whatever else it left behind is
killed then, as in a container. When standard input closes (the rehearsal is gone, or it pulls
the plug) everything is killed at once. Exit code as an engine has it: 128 + the signal.
"""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

from include.lake.process_tree import adopt_orphans, descendants

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)
SECONDS_BETWEEN_LOOKS = 0.1


def main(pid_file: Path, folder: str, command: list[str]) -> int:
    adopt_orphans()
    child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True)

    def forward(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, number)

    for number in FORWARDED:
        signal.signal(number, forward)
    pid_file.write_text(str(child.pid))
    code = None
    while code is None and not _standard_input_closed():
        code = _reap(child.pid)
    return _kill_all(child.pid, code)


def _standard_input_closed() -> bool:
    readable, _, _ = select.select([0], [], [], SECONDS_BETWEEN_LOOKS)
    return bool(readable) and not os.read(0, 1)


def _kill_all(main_pid: int, code: int | None) -> int:
    while pids := descendants(os.getpid()):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        select.select([], [], [], 0.02)
        code = _reap(main_pid) if code is None else _reap(main_pid, code)
    return 128 + signal.SIGKILL if code is None else code


def _reap(main_pid: int, code: int | None = None) -> int | None:
    """Bury the dead; the exit code of the main process once it is among them, else `code`."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == main_pid:
                number = os.waitstatus_to_exitcode(status)
                code = number if number >= 0 else 128 - number
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
