"""What the project's image gives every process in it: the Dockerfile's ENV and WORKDIR.

The rest of the Dockerfile (packages, users, files) is not rehearsed: here `.venv` and the project
itself stand for it.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.rehearsal.interpolation import ComposeError

REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


@dataclass(frozen=True)
class Image:
    environment: dict[str, str]
    working_dir: str


def read_dockerfile(path: Path) -> Image:
    """The last stage's ENV and WORKDIR; ENV may name what it set before, and PATH."""
    environment: dict[str, str] = {}
    working_dir = "/"
    for instruction, words in _instructions(path):
        if instruction == "FROM":
            environment, working_dir = {}, "/"
        elif instruction == "ENV":
            for assignment in shlex.split(words):
                name, equals, value = assignment.partition("=")
                if not equals:
                    raise ComposeError(f"{path}: write ENV {words!r} as NAME=value")
                environment[name] = _expanded(value, environment)
        elif instruction == "WORKDIR":
            working_dir = words
    return Image(environment, working_dir)


def _instructions(path: Path) -> list[tuple[str, str]]:
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    split = [line.strip().split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(words[0].upper(), words[1] if len(words) > 1 else "") for words in split]


def _expanded(value: str, known: dict[str, str]) -> str:
    """PATH stays `$PATH` at its first use: the engine's is another than this machine's."""
    return REFERENCE.sub(lambda found: known.get(found[1] or found[2], found[0]), value)
