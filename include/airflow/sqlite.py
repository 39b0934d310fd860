"""Airflow's database in a file, beside tasks that write to it: what keeps it from being locked.

Airflow turns WAL on, so readers never wait, and writers wait for one another. Not so in a
savepoint: Python's driver begins no transaction for it, SQLite takes the snapshot of the first
read, and the first write fails at once, however long it might wait, if anybody has written
meanwhile. That is how Airflow makes the runs of a backfill.
"""

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, sessionmaker

# Longer than any transaction of Airflow's on a slow machine; the driver's own 5 s are not.
CONNECT_ARGS: dict[str, Any] = {"timeout": 60.0}


def session_maker(engine: Engine) -> sessionmaker[Session]:
    """Airflow's sessions as Airflow makes them, on an engine whose savepoints wait for their turn."""
    event.listen(engine, "savepoint", begin_to_write)
    return sessionmaker(engine, autoflush=False, expire_on_commit=False)


def begin_to_write(connection: Connection, name: str | None) -> None:
    """Become the writer before the savepoint reads: the runs of a backfill are all there, or none."""
    driver: Any = connection.connection.dbapi_connection
    if not driver.in_transaction:
        driver.execute("BEGIN IMMEDIATE")
