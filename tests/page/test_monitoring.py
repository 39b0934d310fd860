"""Alert rules and dashboard: of metrics that there are, and as Prometheus reads them."""

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from include.observe.stream_line import metrics_text, read_overview
from include.settings import PROJECT
from tests.page.history import NOW, streams_like, write_history
from tests.page.prometheus import promtool
from tests.page.test_metrics import parsed

FOLDER = PROJECT / "docs" / "monitoring"
RULES_TEST = PROJECT / "tests" / "page" / "rules.test.yaml"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
# What Grafana fills in.
VARIABLES = {'"$stream"': '".*"'}
SAMPLE = re.compile(r"(stateful_lake_\w+)(?:\{([^}]*)\})?")


def expressions() -> list[str]:
    panels = [t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"]]
    return [rule["expr"] for rule in RULES] + panels


def test_rules_and_dashboard_are_of_metrics_that_there_are(lake):
    streams = streams_like(2)
    write_history(lake, streams, 3)
    given: dict[str, dict[str, set[str]]] = {}
    for name, labels in parsed(metrics_text(read_overview(lake, streams, NOW))):
        known = given.setdefault(name, {})
        for label, value in labels:
            known.setdefault(label, set()).add(value)
    used = {name for text in expressions() for name, _ in SAMPLE.findall(text)}
    assert used <= set(given)
    # What the page of the docs says a metric tells is seen on the dashboard, or told.
    assert set(given) - used == {"stateful_lake_until_timestamp_seconds"}
    for text in expressions():
        for name, selector in SAMPLE.findall(text):
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selector):
                assert value in ("$stream", *given[name][label]), text


def test_each_rule_is_tested_when_it_fires_and_says_what_to_do():
    tests = yaml.safe_load(RULES_TEST.read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert firing == {rule["alert"] for rule in RULES}
    for rule in RULES:
        assert rule["labels"]["severity"] in ("error", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> str:
    return promtool(tmp_path_factory.mktemp("prometheus"))


def run(program: str, *words: str, **more: Any) -> None:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.e2e
def test_promtool_takes_the_rules_and_they_fire_as_tested(program):
    run(program, "check", "rules", "rules.yaml", cwd=FOLDER)
    run(program, "test", "rules", str(RULES_TEST))


@pytest.mark.e2e
def test_promtool_takes_the_metrics(program, lake):
    streams = streams_like(3)
    write_history(lake, streams, 3)
    run(program, "check", "metrics", input=metrics_text(read_overview(lake, streams, NOW)))


@pytest.mark.e2e
def test_promtool_takes_each_expression_of_the_dashboard(program, tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": with_variables(text)}
        for number, text in enumerate(expressions())
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    run(program, "check", "rules", str(file))


def with_variables(text: str) -> str:
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    return text
