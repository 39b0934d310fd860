"""The most memory that a process and all its children hold together."""

import subprocess
import threading

import psutil


def peak_memory(process: subprocess.Popen[bytes]) -> int:
    """The most bytes that the process and its children hold together, until it ends.

    Pages that they share count once (PSS), looked at twice a second.
    """
    ended = threading.Event()
    threading.Thread(target=lambda: (process.wait(), ended.set()), daemon=True).start()
    parent, peak = psutil.Process(process.pid), 0
    while not ended.wait(0.5):
        held = 0
        try:
            for each in (parent, *parent.children(recursive=True)):
                held += each.memory_full_info().pss
        except psutil.Error:  # one of them has ended meanwhile: the next look is as good
            continue
        peak = max(peak, held)
    return peak
