"""A zone that a text names itself (%Z) is not the declared one."""

from include.origins import Times
from tests.refused import refused


def test_a_format_that_reads_the_name_of_a_zone_is_refused():
    """Python knows UTC and the machine's own names, and passes over them: 12:00 UTC would be 10:00."""
    with refused("wrong_setting", subject="format"):
        Times(format="%Y-%m-%d %H:%M %Z", zone="Europe/Berlin")
