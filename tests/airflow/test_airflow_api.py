"""What the launcher does when Airflow, busy with its database, answers with an error."""

from urllib.error import HTTPError

import pytest

from include.airflow.api import ATTEMPTS, AirflowApi


class Busy:
    """Answers each call with the next of `codes`, 200 for success; keeps what was asked."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked: list[str] = []

    def __call__(self, method, path, body=None):
        self.asked.append(method)
        code = self.codes.pop(0)
        if code != 200:
            raise HTTPError(path, code, "", {}, None)
        return {"access_token": "t"}


def api(monkeypatch, *codes: int) -> tuple[AirflowApi, Busy]:
    made, busy = AirflowApi("http://localhost"), Busy(*codes)
    monkeypatch.setattr(made, "_call", busy)
    return made, busy


def test_a_log_in_is_repeated_but_not_for_ever_nor_when_it_is_refused(monkeypatch):
    made, _ = api(monkeypatch, 500, 200)
    made.log_in("u", "p")
    assert made.token == "t"
    for codes in ([500] * ATTEMPTS, [401]):
        made, busy = api(monkeypatch, *codes)
        with pytest.raises(HTTPError):
            made.log_in("u", "p")
        assert not busy.codes
