"""What the garbage collector of Spark's Python workers looks at."""

import gc
import sys

_left_alone = 0  # the modules that this process had when it last hid what they are made of


def leave_imports_alone() -> None:
    """Hide what this process has imported from Python's garbage collector.

    Spark's worker looks for garbage after each task: 27 ms, nearly all of it among modules, which stay.
    Much is imported only by the first task itself: so again where modules have come since.
    """
    global _left_alone
    if len(sys.modules) != _left_alone:
        gc.freeze()
        _left_alone = len(sys.modules)
