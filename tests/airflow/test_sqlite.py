"""Airflow's database in a file: a savepoint that reads and then writes, beside another writer."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from include.airflow.environment import CONNECT_ARGS, session_maker

Maker = Callable[[], Session]


def sessions(folder: Path, make: Callable = session_maker) -> Maker:
    engine = create_engine(f"sqlite:///{folder / 'airflow.db'}", connect_args=CONNECT_ARGS)

    @event.listens_for(engine, "connect")
    def use_wal(connection: object, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")  # as Airflow does

    return make(engine)


def write(maker: Maker) -> None:
    with maker() as session:
        session.execute(text("INSERT INTO runs VALUES ('of another')"))
        session.commit()


def make_runs(maker: Maker, meanwhile: Callable[[], None]) -> None:
    """As Airflow makes each run of a backfill."""
    with maker() as session:
        for _ in range(2):
            with session.begin_nested():
                session.execute(text("SELECT * FROM runs")).all()
                meanwhile()
                session.execute(text("INSERT INTO runs VALUES ('of the backfill')"))
        session.commit()


def rows(maker: Maker) -> list[str]:
    with maker() as session:
        return list(session.scalars(text("SELECT * FROM runs")))


@pytest.fixture
def maker(tmp_path) -> Maker:
    maker = sessions(tmp_path)
    with maker() as session:
        session.execute(text("CREATE TABLE runs (id TEXT)"))
    return maker


def test_a_savepoint_is_not_locked_out_by_who_writes_meanwhile(maker):
    writers = [Thread(target=write, args=(maker,)) for _ in range(2)]
    seen = []

    def meanwhile() -> None:
        writers[len(seen)].start()
        seen.append(rows(maker))

    make_runs(maker, meanwhile)
    for writer in writers:
        writer.join()
    assert seen == [[], []], "a reader does not wait, and sees no half of a backfill"
    assert sorted(rows(maker)) == ["of another"] * 2 + ["of the backfill"] * 2


def test_without_it_sqlite_says_that_it_is_locked(maker, tmp_path):
    """When this no longer fails, `session_maker` can go."""
    plain = sessions(tmp_path, sessionmaker)
    with pytest.raises(OperationalError):
        make_runs(plain, lambda: write(plain))
