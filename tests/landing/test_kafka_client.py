"""How brokers are asked; what they answer is tried on a real one, in tests/e2e/test_kafka.py."""

from concurrent.futures import Future
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException

from include.landing import kafka_client
from include.landing.kafka_client import LEADER_CHANGES, BrokerTopic
from include.origins import KafkaTopic
from tests.refused import refused


class Answers:
    """The offset of partition 0, behind errors with these codes."""

    def __init__(self, *codes: int) -> None:
        self.codes, self.asked = list(codes), 0

    def __call__(self) -> dict[int, Future[int]]:
        self.asked += 1
        answer: Future[int] = Future()
        if self.codes:
            answer.set_exception(KafkaException(KafkaError(self.codes.pop(0))))
        else:
            answer.set_result(7)
        return {0: answer}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> BrokerTopic:
    monkeypatch.setattr(kafka_client, "BETWEEN_ASKING_S", 0)
    # Nothing listens there, and nothing asks it anything.
    return BrokerTopic(KafkaTopic(servers="127.0.0.1:1", topic="t", timeout=timedelta(seconds=30)))


def test_a_partition_whose_leader_changes_is_asked_for_again(topic: BrokerTopic):
    answers = Answers(*sorted(LEADER_CHANGES))
    assert topic._asked(answers) == {0: 7}
    assert answers.asked == 1 + len(LEADER_CHANGES)


def test_other_errors_are_told_at_once(topic: BrokerTopic):
    answers = Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with refused("unreadable_input", subject="t"):
        topic._asked(answers)
    assert answers.asked == 1


def test_a_leader_that_never_comes_is_told_after_the_timeout(
    topic: BrokerTopic, monkeypatch: pytest.MonkeyPatch
):
    seconds = iter(range(0, 1000, 20))
    monkeypatch.setattr(kafka_client, "monotonic", lambda: next(seconds))
    answers = Answers(*[KafkaError.LEADER_NOT_AVAILABLE] * 9)
    with refused("unreadable_input", subject="t"):
        topic._asked(answers)
    assert answers.asked == 2
