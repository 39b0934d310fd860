"""Your sources: the events that producers land, and the rules by which rows are admitted."""

from datetime import timedelta

from include.connectors import StreamTable
from include.settings import MIB, Field, Source

# A day of sample data is two or three commits, so some of its rows are late, as in real life:
# in one commit none is. A source of your own leaves `commit_bytes` out.
SAMPLE_COMMIT = 1 * MIB

SOURCES: tuple[Source, ...] = (
    Source(
        name="signals",
        time_field="timestamp",
        comment="Readings that devices send",
        commit_bytes=SAMPLE_COMMIT,
        fields=(
            Field(name="device_id", type="bigint", comment="The device that sent the signal"),
            Field(name="value", type="bigint", comment="The reading"),
        ),
    ),
    Source(
        name="user_events",
        time_field="event_time",
        comment="What users do",
        commit_bytes=SAMPLE_COMMIT,
        fields=(
            Field(name="user_id", type="string", comment="The user who acted"),
            Field(name="event_type", type="string", comment="What the user did"),
            Field(name="value", type="double", comment="How much of it"),
        ),
    ),
    Source(
        name="service_logs",
        time_field="timestamp",
        comment="Log lines that services write",
        commit_bytes=SAMPLE_COMMIT,
        fields=(
            Field(name="service", type="string", comment="The service that wrote the line"),
            Field(name="level", type="string", comment="Severity", required=False),
            Field(name="message", type="string", comment="The line's text", required=False),
        ),
        # Services are watched for silence: that must show when all of them are silent, too.
        heartbeat_delay=timedelta(minutes=1),
    ),
    # What streams emit, at `emitted_at`; their fields are the columns of the tables.
    Source(name="sessions", comment="Sessions of users", connector=StreamTable("user_sessions")),
    Source(name="streaks", comment="Streaks of users", connector=StreamTable("session_streaks")),
)
