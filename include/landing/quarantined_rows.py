"""What a batch refused, told when it is much: nobody looks into quarantine unasked."""

from collections.abc import Sequence
from typing import NamedTuple

from include.lake.findings import Finding
from include.landing.landed_values import UNREADABLE_FILE, shown
from include.settings import Source
from include.text_table import counted


class Refusals(NamedTuple):
    """Those of a batch for one reason."""

    code: str
    rows: int  # a file that is refused as a whole counts as one
    file: str  # the first that has one


def quarantine_findings(source: Source, landed: int, refusals: Sequence[Refusals]) -> list[Finding]:
    """A warning where more than `max_quarantined` of the `landed` rows were refused, or a whole file.

    How many rows such a file has is not known, so one is always told of.
    """
    refused = sum(of_code.rows for of_code in refusals)
    is_file = any(of_code.code == UNREADABLE_FILE for of_code in refusals)
    if not is_file and refused <= source.max_quarantined * landed:
        return []
    most_first = sorted(refusals, key=lambda of_code: (-of_code.rows, of_code.code))
    return [
        Finding(
            finding="rows_quarantined",
            severity="warning",
            count=refused,
            figure=refused / landed,
            limit=source.max_quarantined,
            detail=f"of {counted(landed, 'row')} that landed for {source.name}, {refused} went to "
            f"quarantine: {', '.join(map(_told, most_first))}",
            action=f"quarantine/{source.name} has each with its reason. Mend what writes them, the "
            f"files, or the source's entry; then `./stateful reingest {source.name}` takes them in",
        )
    ]


def _told(of_code: Refusals) -> str:
    return f"{of_code.rows} {of_code.code} (first in {shown(of_code.file)})"
