"""By which entry of its source a batch was begun: one that is repeated must judge rows as before.

The commit of its plan says so. Should a clean-up of the log have taken that away, it is not known.
"""

import hashlib
import json
from dataclasses import asdict

from include.lake.commits import find_commit
from include.lake.delta_log import commit_info, table_to_read, told_by
from include.lake.paths import Lake
from include.origins import KafkaTopic
from include.settings import Field, Source

ENTRY = "entry"


def entry_hash(source: Source) -> str:
    """Of all that decides which rows are events, and what their values are."""
    decides = {
        "fields": sorted(_field(field) for field in source.fields),
        "time": [source.time_field, asdict(source.times), str(source.max_future)],
        "csv": asdict(source.csv),
        "kept": [source.rescue, sorted(source.ignored)],
        "max_file_bytes": source.max_file_bytes,
    }
    if isinstance(source.origin, KafkaTopic):
        declared = source.origin.schema
        # Nothing is added for topics without: batches that were begun by their hash go on.
        added = [] if declared is None else [declared]
        decides["messages"] = [source.origin.format, source.origin.tombstones, *added]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]


def _field(field: Field) -> tuple[str, ...]:
    times = json.dumps(field.times and asdict(field.times))
    return field.name, field.type, field.landed, str(field.required), times


def planned_entry(lake: Lake, path: str, app_id: str, batch: int) -> str | None:
    """The hash of that with which the plan was committed to the position at `path`; None of none."""
    found = find_commit(lake, path, table_to_read(path).version(), app_id, batch)
    return None if found is None else told_by(commit_info(found)).get(ENTRY)
