"""Who is told: each notifier once of each change, whatever dies, fails or comes at once."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest
import structlog
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.execution_time.callback_supervisor import execute_callback

from include.airflow import alerts
from include.lake.ops import read_ops
from include.observe import alerts as recorded
from include.observe.alerts import Standing, record_changes, untold, worst
from include.streams import notify
from tests.observe.lakes import NOON, STREAM, Told
from tests.refused import refused

BY = "device_signals"
SKEW = {
    "finding": "skew",
    "severity": "warning",
    "detail": "<b>5 times",
    "count": 2,
    "action": "spread",
}
LOST = {
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


def stand(*found: Mapping[str, Any]) -> list[Standing]:
    return [Standing(subject=BY, open=worst(found), is_checked=True)]


def note(lake, *found, dag_run_id="r1", now=NOON):
    record_changes(lake, BY, dag_run_id, stand(*found), now)


@pytest.fixture
def sent(monkeypatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(notify, "NOTIFY", (Mailbox(messages),))
    return messages


def test_a_message_has_the_worst_first_with_the_next_step_and_what_is_over(lake, sent):
    note(lake, SKEW)
    alerts.send(lake, BY, {})
    note(lake, LOST)
    alerts.send(lake, BY, {})
    note(lake)
    alert = alerts.send(lake, BY, {})
    assert [re.findall(r"skew|checkpoint_unreadable|over|spread", message) for message in sent] == [
        ["skew", "skew", "spread"],
        ["checkpoint_unreadable", "over", "skew", "checkpoint_unreadable", "over", "skew"],
        ["over", "checkpoint_unreadable"] * 2,
    ]
    assert alert is not None
    assert (alert.severity, "<b>" in alert.html) == ("ok", False)


def test_what_was_told_is_not_told_again(lake, sent):
    note(lake, SKEW)
    assert alerts.send(lake, BY, {}) is not None
    assert alerts.send(lake, BY, {}) is None
    note(lake, SKEW)
    assert alerts.send(lake, BY, {}) is None
    assert len(sent) == 1


def test_a_look_that_was_killed_after_it_recorded_is_told_by_the_next_one(lake, sent):
    note(lake, SKEW)
    note(lake, SKEW, dag_run_id="r1")  # the task, retried
    alerts.send(lake, BY, {})
    assert len(sent) == 1
    assert read_ops(lake, "alerts").num_rows == 1


def test_of_two_looks_at_once_one_records(lake, monkeypatch):
    append = recorded.append_ops
    second = Thread(target=note, args=(lake, SKEW), kwargs={"dag_run_id": "second"})

    def slower(*given: Any) -> None:
        monkeypatch.setattr(recorded, "append_ops", append)
        second.start()
        second.join(0.5)
        append(*given)

    monkeypatch.setattr(recorded, "append_ops", slower)
    note(lake, SKEW, dag_run_id="first")
    second.join()
    assert [row["dag_run_id"] for row in untold(lake, BY)] == ["first"]


def test_a_notifier_that_fails_keeps_none_from_the_others_and_is_told_later(lake, monkeypatch):
    broken = [True]
    first: list[str] = []
    second: list[str] = []
    monkeypatch.setattr(notify, "NOTIFY", (Mailbox(first, broken=broken), Mailbox(second)))
    note(lake, SKEW)
    with pytest.raises(ExceptionGroup):
        alerts.send(lake, BY, {})
    assert (len(first), len(second)) == (0, 1)
    broken.clear()
    alerts.send(lake, BY, {})
    alerts.send(lake, BY, {})
    assert (len(first), len(second)) == (1, 1)


def test_a_notifier_that_does_not_answer_keeps_none_from_the_others(lake, monkeypatch):
    """Nor the stream from its next run, which waits for the task `alert`."""
    told: list[str] = []

    def hang(context: Any) -> None:
        Event().wait(10)

    monkeypatch.setattr(alerts, "ANSWERS_WITHIN", timedelta(seconds=0.1))
    monkeypatch.setattr(notify, "NOTIFY", (hang, Mailbox(told)))
    note(lake, SKEW)
    with pytest.raises(ExceptionGroup) as failed:
        alerts.send(lake, BY, {})
    assert failed.group_contains(TimeoutError)
    assert len(told) == 1


@pytest.mark.parametrize("wrong", [Mailbox([]), None])
def test_what_is_no_tuple_of_notifiers_is_said_by_the_file_and_told_later(lake, monkeypatch, wrong):
    monkeypatch.setattr(notify, "NOTIFY", wrong)
    note(lake, SKEW)
    with refused("wrong_setting", subject="include/streams/notify.py"):
        alerts.send(lake, BY, {})
    assert untold(lake, BY)


def test_a_kill_between_two_notifiers_repeats_none(lake, monkeypatch):
    first: list[str] = []

    def die(context: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(notify, "NOTIFY", (Mailbox(first), die))
    note(lake, SKEW)
    with pytest.raises(KeyboardInterrupt):
        alerts.send(lake, BY, {})
    second: list[str] = []
    monkeypatch.setattr(notify, "NOTIFY", (Mailbox(first), Mailbox(second)))
    alerts.send(lake, BY, {})
    assert (len(first), len(second)) == (1, 1)


def test_a_missed_deadline_tells_of_a_table_that_is_behind_once_and_of_no_backfill(
    lake, sent, monkeypatch
):
    stream = replace(STREAM, fresh_within=timedelta(hours=1))
    told = Told(lake, stream)
    told.run()
    told.look()
    monkeypatch.setattr(alerts, "stream_named", lambda name: stream)
    monkeypatch.setenv("LAKE", lake.root)
    run = {"dag_run_id": "scheduled__1", "run_type": "scheduled"}
    miss(run | {"run_type": "backfill"})
    assert sent == []
    miss(run)
    miss(run)
    (message,) = sent
    assert "behind_promise" in message


def miss(dag_run: Mapping[str, str]) -> None:
    """As Airflow calls what a deadline names."""
    callback = alerts.deadline(replace(STREAM, fresh_within=timedelta(hours=1))).callback
    given = {**callback.kwargs, "context": {"dag_run": dag_run, "deadline": {}}}
    done, error = execute_callback(callback.path, given, "", None, structlog.get_logger())
    assert done, error
