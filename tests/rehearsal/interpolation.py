"""Variables in a compose file, as the Compose specification has them: `${NAME:-default}` and so on.

Without nesting, which `docker compose` would allow: a file that needs it is hard to read.
"""

import re
from collections.abc import Mapping
from typing import Any

VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<plain>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?:(?P<operator>:?[-?+])(?P<word>[^{}]*))?\}|(?P<broken>))"
)


class ComposeError(Exception):
    """The compose file, or an env file of it, cannot be used; the message says where and why."""


def interpolate(node: Any, variables: Mapping[str, str], where: str = "the file") -> Any:
    """`node` (what YAML holds) with the variables of all its strings filled in.

    Keys are left alone. A variable that is not set is empty, as `docker compose` has it (which
    warns). ComposeError for `${NAME:?...}` without a value, and for what is no variable.
    """
    if isinstance(node, str):
        return VARIABLE.sub(lambda found: _value(found, variables, where), node)
    if isinstance(node, dict):
        return {
            key: interpolate(value, variables, f"{where}: {key}") for key, value in node.items()
        }
    if isinstance(node, list):
        return [interpolate(value, variables, where) for value in node]
    return node


def _value(found: re.Match[str], variables: Mapping[str, str], where: str) -> str:
    if found["broken"] is not None:
        raise ComposeError(f"{where}: {found.string!r} has a $ that is no variable: write $$")
    if found["dollar"]:
        return "$"
    name, operator, word = found["plain"] or found["name"], found["operator"] or "", found["word"]
    value = variables.get(name)
    # The colon makes an empty value count as none.
    is_given = bool(value) if operator.startswith(":") else value is not None
    if operator.endswith("+"):
        return word if is_given else ""
    if is_given:
        return value or ""
    if operator.endswith("?"):
        raise ComposeError(f"{where}: {name} is not set: {word or 'it is required'}")
    return word if operator.endswith("-") else value or ""
