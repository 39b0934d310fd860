"""docker-compose.yaml as the tests of it read it: merged, and not interpolated."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OUR_IMAGE = "stateful-lake"
ONE_SHOT = {"airflow-init"}
AIRFLOW = sorted(name for name in SERVICES if name.startswith("airflow-"))
SPARK = sorted(name for name in SERVICES if name.startswith("spark-"))
VARIABLE = re.compile(r"\$\{(\w+)(?:(:?[-?])([^}]*))?\}")
SPARK_CONF = dict(
    line.split(maxsplit=1)
    for line in (ROOT / "include/docker/spark/spark-defaults.conf").read_text().splitlines()
    if line and not line.startswith("#")
)


def strings(value: Any) -> Iterator[str]:
    """All scalars below `value`, as the file has them."""
    if isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    else:
        yield str(value)


def variables(value: Any) -> Iterator[tuple[str, str, str]]:
    """Name, operator and what follows it of each variable in `value`."""
    for text in strings(value):
        yield from VARIABLE.findall(text)


def with_defaults(text: Any) -> str:
    """As it is for a user who sets nothing; secrets stand as their names."""
    return VARIABLE.sub(lambda match: match[3] if match[2] == ":-" else match[1], str(text))


def mebibytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([mg])", text)
    assert match, text
    return int(match[1]) * {"m": 1, "g": 1024}[match[2]]


def seconds(text: str) -> int:
    """Of a duration like `1h10m`."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))
