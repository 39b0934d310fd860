"""What has ended because memory was short: how that is said, and what to do. Nothing of a lake is damaged by it."""

import re

# A JVM exits so by `ExitOnOutOfMemoryError`; and these are the ends of what the kernel has killed, or that
# crashed, as Python and as shells give them.
HEAP_FULL = 3
ABRUPT = (-6, -9, -11, 134, 137, 139)
AGAIN = "Nothing is lost: {}, and repeat the command (docs/operations.md, Too little memory)"
OF_HEAP = re.compile(r"java\.lang\.OutOfMemoryError(: [^\n]*)?|SparkOutOfMemoryError")
# A traceback's last line, or within the line of a function that has failed.
OF_PYTHON = re.compile(r"(?:^|: )(?:[\w.]+\.)?(?:Arrow)?MemoryError(?=:|$)", re.MULTILINE)
OF_WORKER = "Python worker exited unexpectedly"
# As Py4J says that nobody answers.
OF_JVM = re.compile(
    r"Answer from Java side is empty|Error while (sending|receiving)"
    r"|error occurred while trying to connect to the Java server"
)
MORE_HEAP = (
    "give the JVM more by spark.driver.memory (of executors: spark.executor.memory) in the "
    "spark-defaults.conf of the folder that SPARK_CONF_DIR names"
)
MORE_MEMORY = "have fewer jobs at once, or a machine or container with more memory"
ABRUPTLY = (
    "without a word, as when it is killed by a machine that has no memory left. "
    + AGAIN.format(MORE_MEMORY)
)
LESS_AT_ONCE = f"{MORE_MEMORY}, or give the stream more buckets"


def short_memory(said: str) -> str | None:
    """What an error comes to that was raised for want of memory, in one line; None for any other."""
    if found := OF_HEAP.search(said):
        return f"the JVM had too little memory ({found[0]}). {AGAIN.format(MORE_HEAP)}"
    if OF_WORKER in said:
        return (
            f"a Python worker was killed ({OF_WORKER}), as a machine does that has no memory "
            f"left. {AGAIN.format(LESS_AT_ONCE)}"
        )
    if OF_PYTHON.search(said):
        return f"{_of_python(said)}: Python had too little memory. {AGAIN.format(LESS_AT_ONCE)}"
    if OF_JVM.search(said):
        return f"the JVM has ended {ABRUPTLY}"
    return None


def of_exit_code(code: int) -> str | None:
    """What is said of a job that could not say itself why it ended; None for one that could."""
    if code == HEAP_FULL:
        return short_memory("java.lang.OutOfMemoryError")
    return f"the job has ended with exit code {code} {ABRUPTLY}" if code in ABRUPT else None


def _of_python(said: str) -> str:
    """The line that says so: of a function that failed it has the key and the instant."""
    return next(line for line in reversed(said.splitlines()) if OF_PYTHON.search(line)).strip(" :")
