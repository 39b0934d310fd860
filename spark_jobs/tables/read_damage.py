"""Whether an error of Spark says that a table's files are gone or damaged: else it may pass.

Only what is certain: who is told of damage deletes. A file that may not be read, too many open
ones, a connection that broke: none of these says anything of the file.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.errors import PySparkException

NO_TABLE = {"DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND"}
# Java's own says `(Permission denied)` and `(Too many open files)` by this class, too, and Spark
# calls all of them FAILED_READ_FILE.FILE_NOT_EXIST.
NO_FILE = ("java.io.FileNotFoundException", re.compile(r"does not exist|No such file"))
DAMAGED_CLASSES = (".ChecksumException", ".TProtocolException")
DAMAGED = re.compile(r"is not a Parquet file|FAILED_TO_UNCOMPRESS|\bcorrupt", re.IGNORECASE)


class Cause(NamedTuple):
    """An exception of the JVM."""

    java_class: str
    message: str


def damage_in(error: Exception) -> str | None:
    """What of a table is gone or damaged, in one line; None when the error does not say so."""
    if isinstance(error, PySparkException) and error.getCondition() in NO_TABLE:
        return str(error).partition("\n")[0]
    # Py4J's error has it by the one name, those of PySpark by the other.
    origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found = (cause for cause in _causes(origin) if is_damage(cause))
    return next((cause.message.partition("\n")[0] for cause in found), None)


def is_damage(cause: Cause) -> bool:
    """Whether it says that a file is gone, or that what is in it is no more what was written."""
    java_class, words = NO_FILE
    if cause.java_class == java_class:
        return words.search(cause.message) is not None
    if cause.java_class.startswith("org.apache.spark."):
        return False  # it says where, and gives advice; what happened is in its cause
    if cause.java_class.endswith(DAMAGED_CLASSES):
        return True
    return DAMAGED.search(cause.message) is not None


def _causes(error: Any) -> Iterator[Cause]:
    while error is not None:
        yield Cause(error.getClass().getName(), error.getMessage() or "")
        error = error.getCause()
