"""What is to be done before a key can be erased."""

from include.amend.erase_plan import plan_erasure
from include.amend.erase_rows import erased_key
from include.ingest.from_scratch import move_source_aside
from include.ingest.ingest import ingest
from include.lake.paths import Lake
from tests.ingested import SIGNALS
from tests.landed_files import Landing, signal
from tests.refused import refused

WHO = erased_key("signals", "device_id=7")


def test_what_was_moved_aside_is_to_go_first_also_where_that_is_bronze_itself(lake: Lake):
    Landing(lake).add("a.jsonl", [signal(0, device_id=7)])
    ingest(lake, SIGNALS)
    move_source_aside(lake, SIGNALS)
    with refused("not_erasable"):
        plan_erasure(lake, WHO)


def test_what_has_landed_is_to_be_ingested_first(lake: Lake):
    Landing(lake).add("a.jsonl", [signal(0, device_id=7)])
    with refused(
        "nothing_there", subject="bronze/signals", command="./stateful stream device_signals"
    ):
        plan_erasure(lake, WHO)
