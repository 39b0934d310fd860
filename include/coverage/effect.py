"""What an operation does to the coverage of a table, in words, before it is done."""

from collections.abc import Sequence

from include.coverage.findings import instant_text, spans_text
from include.coverage.judge import Coverage, Span
from include.coverage.segments import BEGINNING_US


def recompute_effect(coverage: Coverage, from_us: int, until_us: int) -> str:
    """Of a recompute of `[from_us, until_us)` of an append table."""
    inside, outside = [], []
    for span in coverage.wrong:
        part = _clipped(span, from_us, until_us)
        inside += [part] if part else []
        outside += _without(span, from_us, until_us)
    if not inside:
        said = "The table is right there already: it changes nothing"
    else:
        said = f"It makes right what is wrong now {spans_text(inside)}"
    return f"{said}{_left(outside)}"


def reseed_effect(
    coverage: Coverage,
    from_us: int | None,
    until_us: int,
    is_same_code: bool,
    takes_away_us: int | None,
) -> str:
    """Of a reseed that makes the table right from `from_us` (None: the beginning) to `until_us`.

    `takes_away_us`: until where the table has rows now that it will not have; None: it has none.
    """
    if coverage.until_us is None:
        said = "The table has nothing complete yet"
    elif coverage.wrong:
        first_us = BEGINNING_US if from_us is None else from_us
        inside = [part for s in coverage.wrong if (part := _clipped(s, first_us, until_us))]
        before = [part for s in coverage.wrong if (part := _clipped(s, BEGINNING_US, first_us))]
        # What is wrong may begin where a rewind ends, or later.
        right = f"It makes right what is wrong now {spans_text(inside)}"
        said = f"{right if inside else 'It makes anew what is right already'}{_left(before)}"
    elif is_same_code and coverage.live_is_right and until_us == coverage.until_us:
        said = "The table is right already: no row of it changes"
    else:
        said = "The table is right already"
    if takes_away_us is not None:
        said += (
            f". It takes away what is from {instant_text(until_us)} until "
            f"{instant_text(takes_away_us)} UTC: the stream's next run computes that again"
        )
    return said


def state_between(coverage: Coverage, from_us: int, until_us: int) -> str:
    """Whether a table is right in `[from_us, until_us)`, in a word or two: right, late rows, ..."""
    found = (_clipped(span, from_us, until_us) for span in coverage.wrong)
    reasons = sorted({span.reason for span in found if span and span.reason})
    return ", ".join(reasons) or "right"


def _left(spans: Sequence[Span]) -> str:
    return f", and leaves as it is what is {spans_text(spans)}" if spans else ""


def _clipped(span: Span, from_us: int, until_us: int) -> Span | None:
    first, last = max(span.from_us, from_us), min(span.until_us, until_us)
    return Span(first, last, span.reason, span.missing) if first < last else None


def _without(span: Span, from_us: int, until_us: int) -> list[Span]:
    parts = (
        (span.from_us, min(span.until_us, from_us)),
        (max(span.from_us, until_us), span.until_us),
    )
    return [Span(*part, span.reason, span.missing) for part in parts if part[0] < part[1]]
