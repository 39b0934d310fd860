"""The commands that compare the streams' files with the lake, and carry out what was approved."""

import shlex
from datetime import UTC, datetime
from typing import Annotated

import typer

from include import run_local
from include.cli.app import DONE, JsonOption, LakeOption, command, main, show_json
from include.cli.commands import STATE
from include.lake.paths import Lake
from include.registry import parents_of, source_named, stream_named, stream_names
from include.spark.submit import say
from include.stream.approvals import approved_only
from include.stream.deploy_plan import PlannedStream, approve, make_plan, step_left
from include.text_table import counted

OnlyOption = Annotated[
    str | None,
    typer.Option("--only", metavar="NAME[+]", help="One stream; with + its descendants, too."),
]
ForwardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--forward",
        metavar="NAME",
        autocompletion=stream_names,
        help="A stream whose rows of the former code stay, back to a savepoint of it.",
    ),
]


@command("plan", "plan --check", STATE)
def plan(
    lake: LakeOption,
    only: OnlyOption = None,
    forward: ForwardOption = None,
    is_json: JsonOption = False,
    is_markdown: Annotated[
        bool, typer.Option("--markdown", help="For a comment on a pull request.")
    ] = False,
    is_check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Exit with 0: nothing is to do; 3: only runs are; 4: a table is wrong, or would be; "
            "2: a stream cannot be.",
        ),
    ] = False,
) -> int:
    """Show what the streams' files would change in the lake: what is wrong, from when, and what mends it."""
    whole = make_plan(lake, forward or ())
    made = whole.only(only) if only else whole
    heading = f"Plan {made.plan_id}: this folder beside {lake.root}, {datetime.now(UTC):%F %R} UTC"
    if is_json:
        show_json(made.record())
    else:
        say(made.markdown(heading) if is_markdown else made.text(heading))
    return made.exit_code if is_check else DONE


@command("apply", "apply 7c1e09a4-2210418 --only user_sessions+", STATE)
def apply(
    plan_id: Annotated[str, typer.Argument(metavar="PLAN", help="As `plan` shows it.")],
    lake: LakeOption,
    only: OnlyOption = None,
    forward: ForwardOption = None,
) -> int:
    """Carry out a plan, if its steps are still those that it showed; again after a kill: what is left of it."""
    whole = make_plan(lake, forward or ())
    made = whole.only(only) if only else whole
    approved = approve(lake, whole, made, plan_id)
    done = 0
    with approved_only():
        for step in made.steps:
            source = source_named(stream_named(step.stream).source)
            if parents_of(step.stream) and (code := run_local.ingest(lake, source)):
                return code
            is_forward = step.stream in (forward or ())
            left = step_left(lake, step.stream, approved, plan_id, is_forward=is_forward)
            if left is None:
                say(f"{step.stream} is left out: it is right")
                continue
            if code := _carry_out(lake, left):
                return code
            done += 1
    say(f"plan {plan_id}: {counted(done, 'step')} done")
    return DONE


def _carry_out(lake: Lake, step: PlannedStream) -> int:
    say(f"{step.stream}: {step.command}")
    words = shlex.split(step.command or "")[1:]
    return main([*words, "--lake", lake.root])
