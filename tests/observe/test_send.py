"""Each notifier gets each change at least once, whatever dies or fails, and then no more."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
import structlog
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.execution_time.callback_supervisor import execute_callback

from include.airflow import alerts
from include.observe.alerts import Alert, Look
from include.streams import notify
from tests.observe.lakes import NOON, STREAM, Report
from tests.refused import refused

BY = "device_signals"
SKEW = {
    "subject": BY,
    "finding": "skew",
    "severity": "warning",
    "detail": "<b>5 times",
    "count": 2,
    "action": "spread",
}
LOST = {
    "subject": BY,
    "finding": "checkpoint_unreadable",
    "severity": "error",
    "detail": "gone",
    "count": None,
    "action": None,
}


class Mailbox(BaseNotifier):
    """A notifier as providers have them: its message is a template."""

    template_fields = ("message",)

    def __init__(
        self, sent: list[str], message: str = "{{ alert.text }}", broken: Any = ()
    ) -> None:
        super().__init__()
        self.sent = Shared(sent)
        self.broken = Shared(broken)
        self.message = message

    def notify(self, context: Any) -> None:
        if self.broken.value:
            raise ConnectionError("no network")
        self.sent.value.append(self.message)


class Shared:
    """Outlives the copies of a notifier."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __deepcopy__(self, memo: Mapping[int, Any]) -> "Shared":
        return self


class Teller:
    """The task `alert` for one look after the other, with Airflow's store of an Asset."""

    def __init__(self) -> None:
        self.retained: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self.retained.get(key)

    def set(self, key: str, value: Any) -> None:
        self.retained[key] = value

    def tell(self, *found: Mapping[str, Any]) -> Alert | None:
        return alerts.tell(BY, [Look(BY, found)], NOON, {BY: self}, {})


@pytest.fixture
def teller() -> Teller:
    return Teller()


@pytest.fixture
def sent(monkeypatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(notify, "NOTIFY", (Mailbox(messages),))
    return messages


def test_a_message_has_the_worst_first_with_the_next_step_and_what_is_over(teller, sent):
    teller.tell(SKEW)
    teller.tell(LOST)
    alert = teller.tell()
    assert [re.findall(r"skew|checkpoint_unreadable|over|spread", message) for message in sent] == [
        ["skew", "skew", "spread"],
        ["checkpoint_unreadable", "over", "skew", "checkpoint_unreadable", "over", "skew"],
        ["over", "checkpoint_unreadable"] * 2,
    ]
    assert alert is not None
    assert (alert.severity, "<b>" in alert.html) == ("ok", False)


def test_what_was_told_is_not_told_again(teller, sent):
    assert teller.tell(SKEW) is not None
    assert teller.tell(SKEW) is None
    assert len(sent) == 1


def test_a_notifier_that_fails_keeps_none_from_the_others_and_is_told_later(teller, monkeypatch):
    broken = [True]
    first: list[str] = []
    second: list[str] = []
    monkeypatch.setattr(notify, "NOTIFY", (Mailbox(first, broken=broken), Mailbox(second)))
    with pytest.raises(ExceptionGroup):
        teller.tell(SKEW)
    assert (len(first), len(second)) == (0, 1)
    broken.clear()
    teller.tell(SKEW)
    teller.tell(SKEW)
    assert (len(first), len(second)) == (1, 2)


def test_a_notifier_that_does_not_answer_keeps_none_from_the_others(teller, monkeypatch):
    """Nor the stream from its next run, which waits for the task `alert`."""
    told: list[str] = []

    def hang(context: Any) -> None:
        Event().wait(10)

    monkeypatch.setattr(alerts, "ANSWERS_WITHIN", timedelta(seconds=0.1))
    monkeypatch.setattr(notify, "NOTIFY", (hang, Mailbox(told)))
    with pytest.raises(ExceptionGroup) as failed:
        teller.tell(SKEW)
    assert failed.group_contains(TimeoutError)
    assert len(told) == 1


@pytest.mark.parametrize("wrong", [Mailbox([]), None])
def test_what_is_no_tuple_of_notifiers_is_said_by_the_file_and_told_later(
    teller, monkeypatch, wrong
):
    monkeypatch.setattr(notify, "NOTIFY", wrong)
    with refused("wrong_setting", subject="include/streams/notify.py"):
        teller.tell(SKEW)
    assert teller.retained == {}


def test_a_missed_deadline_tells_of_a_table_that_is_behind_and_of_no_backfill(
    lake, sent, monkeypatch
):
    stream = replace(STREAM, fresh_within=timedelta(hours=1))
    Report(lake, stream).run()
    monkeypatch.setattr(alerts, "stream_named", lambda name: stream)
    monkeypatch.setenv("LAKE", lake.root)
    run = {"dag_run_id": "scheduled__1", "run_type": "scheduled"}
    miss(run | {"run_type": "backfill"})
    assert sent == []
    miss(run)
    (message,) = sent
    assert "behind_promise" in message


def miss(dag_run: Mapping[str, str]) -> None:
    """Call the callback of a deadline as Airflow does."""
    callback = alerts.deadline(replace(STREAM, fresh_within=timedelta(hours=1))).callback
    given = {**callback.kwargs, "context": {"dag_run": dag_run, "deadline": {}}}
    done, error = execute_callback(callback.path, given, "", None, structlog.get_logger())
    assert done, error
