"""The words of 0.6 that nobody outside knew are gone: from code, docs, tests and names."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What each was called is in CHANGELOG.md alone.
OLD = re.compile(
    r"reseed|recomput|promot(?!e_options)|\bcoverage|\bledger|settled|arrival_watermark"
    r"|commit_watermark|\bclock row|still row|clock_grace|repair.clock|maintain-tables"
    r"|skip.lost|skip.file|from[-_]state|rows_excluded|\bdistrust|\btroubles?\b"
    r"|clean.savepoint|pin_bronze|BronzePin|\bcare\b|on_error=.quarantine",
    re.IGNORECASE,
)
PAIRS = re.compile(r"(?:def|class) \w*(?:anew|beside|along|kept|told|trouble|promote|coverage)\w*")
SKIPPED = {"CHANGELOG.md", "tests/test_words.py"}


def _texts() -> dict[str, str]:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    paths = [ROOT / name for name in names.stdout.splitlines() if name not in SKIPPED]
    texts = (p for p in paths if p.suffix in {".py", ".md", ".html", ".sh", ".yaml", ".scala"})
    return {str(path.relative_to(ROOT)): path.read_text() for path in texts if path.exists()}


def _lines(pattern: re.Pattern[str], texts: dict[str, str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_old_word_is_left():
    assert _lines(OLD, _texts()) == []


def test_no_name_of_the_product_is_of_our_own_dialect():
    texts = {name: text for name, text in _texts().items() if not name.startswith("tests/")}
    assert _lines(PAIRS, texts) == []
