"""Airflow's database in a file: a savepoint that reads and then writes, beside another writer."""

from threading import Thread

import pytest
from sqlalchemy import create_engine, event, text

from include.airflow.environment import CONNECT_ARGS, session_maker


@pytest.fixture
def maker(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'airflow.db'}", connect_args=CONNECT_ARGS)

    @event.listens_for(engine, "connect")
    def use_wal(connection, _):
        connection.execute("PRAGMA journal_mode=WAL")  # as Airflow does

    maker = session_maker(engine)
    with maker() as session:
        session.execute(text("CREATE TABLE runs (id TEXT)"))
    return maker


def rows(maker) -> list[str]:
    with maker() as session:
        return list(session.scalars(text("SELECT * FROM runs")))


def test_a_savepoint_is_not_locked_out_by_who_writes_meanwhile(maker):
    """Airflow makes each run of a backfill in such a savepoint."""

    def write() -> None:
        with maker() as session:
            session.execute(text("INSERT INTO runs VALUES ('of another')"))
            session.commit()

    writers, seen = [Thread(target=write) for _ in range(2)], []
    with maker() as session:
        for writer in writers:
            with session.begin_nested():
                session.execute(text("SELECT * FROM runs")).all()
                writer.start()
                seen.append(rows(maker))
                session.execute(text("INSERT INTO runs VALUES ('of the backfill')"))
        session.commit()
    for writer in writers:
        writer.join()
    assert seen == [[], []], "a reader does not wait, and sees no half of a backfill"
    assert sorted(rows(maker)) == ["of another"] * 2 + ["of the backfill"] * 2
