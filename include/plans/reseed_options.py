"""What a reseed is asked for, on the command line of its plan and of its job alike."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from datetime import datetime

from include.plans.plan_recompute import parse_instant


@dataclass(frozen=True)
class ReseedOptions:
    """What a reseed is asked for; None is as it is now."""

    buckets: int | None = None
    partitions: int | None = None
    until: datetime | None = None  # None: all that the pinned bronze settles
    recompute: bool = False  # from the beginning, whatever savepoints there are
    from_state: bool = False  # from a savepoint of the older state schema, its states mapped

    def text(self) -> str:
        """The options as JSON."""
        return json.dumps(asdict(self), default=datetime.isoformat)


def add_arguments(parser: ArgumentParser) -> None:
    """An argument for each option."""
    parser.add_argument("--buckets", type=int, help="of the new state; as now when not given")
    parser.add_argument("--partitions", type=int, help="state partitions; as now when not given")
    parser.add_argument("--until", help="an earlier instant (UTC) to go on from")
    parser.add_argument("--recompute", action="store_true", help="from the beginning")
    parser.add_argument(
        "--from-state", action="store_true", help="from the older state, by migrate_state"
    )


def options_of(args: Namespace) -> ReseedOptions:
    """The options that were given; SettingsError for an instant that is none."""
    until = parse_instant("UNTIL", args.until) if args.until else None
    return ReseedOptions(args.buckets, args.partitions, until, args.recompute, args.from_state)
