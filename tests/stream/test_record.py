"""A record of very many restates: what it forgets, nobody calls right."""

import random
from collections.abc import Sequence

import pytest

from include.stream.record import MOST_ENTRIES, NO_CODE, RecordEntry, StreamRecord, segments_of

END_US = 2_000


def an_entry(kind: str, from_us: int | None, until_us: int) -> RecordEntry:
    return RecordEntry(
        kind=kind, from_us=from_us, until_us=until_us, generation=1, delay_us=0, codes=("c",)
    )


def entries_by_instant(entries: Sequence[RecordEntry]) -> dict[int, RecordEntry]:
    return {
        at_us: segment.entry
        for segment in segments_of(entries)
        for at_us in range(max(segment.from_us, 0), min(segment.until_us, END_US))
    }


@pytest.mark.parametrize("seed", range(2))
def test_each_instant_is_of_its_newest_entry_or_of_no_code(seed: int):
    rng = random.Random(seed)
    record, all_of_them = StreamRecord(stream="s"), list[RecordEntry]()
    for number in range(1, MOST_ENTRIES + 160):
        start = rng.randrange(END_US)
        made = an_entry("restate", start, start + rng.randrange(1, 4))
        if number in (1, 20):
            made = an_entry("live", None, END_US)
        record = record.with_entry(made)
        all_of_them.append(record.entries[-1])
        assert len(record.entries) <= MOST_ENTRIES
        assert record.own is not None
    known, true = entries_by_instant(record.entries), entries_by_instant(all_of_them)
    forgotten = [at_us for at_us in range(END_US) if known[at_us] != true[at_us]]
    assert {known[at_us].codes for at_us in forgotten} == {(NO_CODE,)}
    assert len(forgotten) < END_US
