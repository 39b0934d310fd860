"""A landing folder of signals, and who parses what lands there."""

import pytest

from include.ingest.parse_files import Parse
from include.lake.paths import Lake
from tests.landed_files import Landing
from tests.parsers import HERE, parser
from tests.topics import FakeTopic, served


@pytest.fixture
def landed(lake: Lake) -> Landing:
    return Landing(lake)


@pytest.fixture
def parse(request: pytest.FixtureRequest) -> Parse:
    """The parser here; Spark's where a test is given that (tests/parsers.py)."""
    return parser(request, getattr(request, "param", HERE))


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    """The topic of `tests.topics.of_topic`."""
    return served(monkeypatch)
