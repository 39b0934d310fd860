"""docker-compose.yaml is read as an engine reads it, and what is not understood is refused."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rehearsal.compose_file import HealthCheck, Service, read_env_file, read_services, seconds
from tests.rehearsal.interpolation import ComposeError, interpolate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A and ${A}", "1 and 1"),
        ("${A:-d}${NONE:-d}${EMPTY:-d}", "1dd"),
        ("${A-d}${NONE-d}${EMPTY-d}", "1d"),
        ("${A:+set}${NONE:+set}${EMPTY:+set}", "set"),
        ("${A+set}${NONE+set}${EMPTY+set}", "setset"),
        ("${A:?why}${A?why}${EMPTY?why}", "11"),
        ("${NONE}|${NONE:-}", "|"),
        ("$$A $$$$ $${A}", "$A $$ ${A}"),
        ("${NONE:-http://h:1/x y}", "http://h:1/x y"),
    ],
)
def test_variables_are_filled_in_as_the_specification_says(text, expected):
    described = {"key": [text, 1, None, True]}
    filled = interpolate(described, {"A": "1", "EMPTY": ""})
    assert filled == {"key": [expected, 1, None, True]}


@pytest.mark.parametrize("operator", ["?", ":?"])
def test_a_required_variable_that_is_missing_is_named_with_its_place_and_message(operator):
    described = {"db": {"environment": {"URL": f"x${{PASSWORD{operator}run make compose-env}}"}}}
    message = "the file: db: environment: URL: PASSWORD is not set: run make compose-env"
    with pytest.raises(ComposeError, match=message):
        interpolate(described, {})


@pytest.mark.parametrize("text", ["$", "a$ b", "${", "${A", "${A:-${B}}", "${1}", "${A:d}"])
def test_a_dollar_that_is_no_variable_is_refused(text):
    with pytest.raises(ComposeError, match="is no variable"):
        interpolate(text, {"A": "1", "B": "2"})


@given(st.text(), st.dictionaries(st.from_regex(r"[A-Z]{1,3}", fullmatch=True), st.text()))
def test_escaped_text_is_never_changed_and_values_are_not_filled_in_again(text, variables):
    assert interpolate(text.replace("$", "$$"), variables) == text
    for name, value in variables.items():
        assert interpolate(f"<${{{name}}}>", variables) == f"<{value}>"


COMMON = """
x-common: &common
  image: ours
  restart: unless-stopped
  environment: &environment
    A: "${A:?tell}"
    N: 7
  depends_on: [db]
services:
  db:
    image: postgres:15
    expose: ["5432"]
  web:
    <<: *common
    command: [serve, --port, "80"]
    environment:
      <<: *environment
      B: b
    env_file: .env
    expose: ["80"]
    ports: ["127.0.0.1:${PORT:-8000}:80"]
    volumes: ["data:/data/", "./conf:/etc/conf:ro"]
    healthcheck: {test: [CMD, check], interval: 1m30s, timeout: 500ms, retries: 2}
    depends_on:
      db: {condition: service_healthy}
    stop_grace_period: 1h10m
    stop_signal: SIGINT
"""


def compose(folder: Path, text: str, **variables: str) -> dict[str, Service]:
    file, env_file = folder / "docker-compose.yaml", folder / "generated.env"
    file.write_text(text)
    env_file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return read_services(file, read_env_file(env_file), env_file)


def test_anchors_are_merged_and_what_a_service_says_itself_wins(tmp_path):
    web = compose(tmp_path, COMMON, A="a", SECRET="s")["web"]
    assert web.environment == {"A": "a", "N": "7", "B": "b", "SECRET": "s"}
    assert (web.image, web.restart, web.command) == (
        "ours",
        "unless-stopped",
        ("serve", "--port", "80"),
    )
    assert web.depends_on == {"db": "service_healthy"}
    assert web.health == HealthCheck(command=("check",), interval=90, timeout=0.5, retries=2)
    assert (web.stop_grace, web.stop_signal) == (4200, "SIGINT")
    assert (web.ports, web.published) == ((80,), {80: 8000})
    assert [(each.source, each.target, each.is_bound) for each in web.volumes] == [
        ("data", "/data", False),
        ("./conf", "/etc/conf", True),
    ]


def test_a_variable_without_a_value_is_passed_on_where_there_is_one(tmp_path):
    text = service_text("environment: {A: , B: , C: c}")
    assert compose(tmp_path, text, A="a", C="another")["one"].environment == {"A": "a", "C": "c"}


def service_text(line: str) -> str:
    return f"services:\n  one:\n    image: x\n    {line}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("command: serve --port 80", "one: command must be a list"),
        ("environment: {A: yes}", "one: environment A: quote its value, True"),
        ("healthcheck: {test: curl localhost}", "one: healthcheck.test must be a list"),
        ("healthcheck: {test: [CMD-SHELL, curl]}", "one: healthcheck.test must be a list"),
        ("restart: sometimes", "one: restart: sometimes is no restart policy"),
        ("stop_grace_period: 5 minutes", "'5 minutes' is no duration"),
        ("depends_on: {one: {condition: service_ready}}", "one: depends_on has no condition"),
        ("depends_on: [two]", "one depends on unknown two"),
        ("ports: ['80:80']", "one: ports '80:80' must be address:port:port, on loopback"),
        ("ports: ['0.0.0.0:80:80']", "must be address:port:port, on loopback"),
        ("volumes: [data]", "one: volume 'data' is no source:target"),
        ("env_file: other.env", "the env file other.env is not there"),
    ],
)
def test_what_an_engine_or_we_would_not_understand_is_refused(tmp_path, line, message):
    with pytest.raises(ComposeError, match=re.escape(message)):
        compose(tmp_path, service_text(line))


@pytest.mark.parametrize(
    ("text", "expected"), [("10s", 10), ("2m", 120), ("1h5m0.5s", 3900.5), ("250ms", 0.25)]
)
def test_durations(text, expected):
    assert seconds(text) == expected


def test_an_env_file_has_comments_quotes_and_values_with_equal_signs(tmp_path):
    file = tmp_path / "env"
    file.write_text("# c\n\nA=1 # why\nexport B='x y'\nC=\"q\"\nD=a=b==\nE=\n")
    assert read_env_file(file) == {"A": "1", "B": "x y", "C": "q", "D": "a=b==", "E": ""}
    file.write_text("A=1\nno assignment\n")
    with pytest.raises(ComposeError, match=r"env, line 2 is no NAME=value"):
        read_env_file(file)
