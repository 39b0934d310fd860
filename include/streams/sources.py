"""Your sources: what producers land, and the rules by which a row is admitted."""

from datetime import timedelta

from include.settings import Field, Source

SOURCES = (
    Source(
        name="signals",
        time_field="timestamp",
        comment="Readings that devices send",
        fields=(
            Field(name="device_id", type="bigint", comment="The device that sent the signal"),
            Field(name="value", type="bigint", comment="The reading"),
        ),
    ),
    Source(
        name="user_events",
        time_field="event_time",
        comment="What users do",
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
        fields=(
            Field(name="service", type="string", comment="The service that wrote the line"),
            Field(name="level", type="string", comment="Severity", required=False),
            Field(name="message", type="string", comment="The line's text", required=False),
        ),
        # Services are watched for silence: that must show when all of them are silent, too.
        clock_grace=timedelta(minutes=1),
    ),
)
