"""The command `field-report`: every check on the installed Stable-Baselines3, sb3-contrib and ``torch.optim``.

What needs torch is imported when the command runs, so that all other commands start as fast as before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rlverify.cli.console import mention
from rlverify.cli.executing import Jobs, RayAddress, Where, executor_of
from rlverify.cli.outputs import check_outputs, hand_over
from rlverify.records.errors import UsageError
from rlverify.running.executors import Executor

if TYPE_CHECKING:
    from rlverify.field.field_measuring import FieldTask
    from rlverify.field.field_records import FieldReport

NAME: Final = "field-report"
NEEDED: Final = ("torch", "stable_baselines3", "sb3_contrib")


def field_report(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these algorithms and optimizers, such as PPO.")
    ] = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where the pages go.")] = Path(),
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Write the pages of a run again from its JSON file.")
    ] = None,
    jobs: Jobs = None,
    where: Where = "processes",
    ray_address: RayAddress = None,
) -> None:
    """Check the installed libraries, and write field-report.md, .html and .json.

    All of it takes about half an hour of one core. The exit code is 0 also if a check failed, and 2 if the command
    cannot be run.
    """
    from rlverify.field.field_file import read_field_report, text_of
    from rlverify.reporting.field_report.field_pages import FIELD_FORMATS, render_field_report

    if source is not None and names:
        raise UsageError("--from writes the pages of a whole run, so it takes no names")
    forms = FIELD_FORMATS if source is not None else (*FIELD_FORMATS, "json")
    files = {form: output / f"{NAME}.{form}" for form in forms}
    for path in files.values():
        check_outputs({"output": path})
    if source is not None:
        report = read_field_report(source)
    else:
        with executor_of(where, jobs, ray_address) as executor:
            report = _measured(names or [], executor)
        hand_over(files["json"].absolute(), text_of(report))
    for form in FIELD_FORMATS:
        hand_over(files[form].absolute(), render_field_report(report, form))


def _measured(names: list[str], executor: Executor) -> FieldReport:
    """
    :raises UsageError: if a library or a name is missing
    """
    from importlib.util import find_spec

    missing = [each for each in NEEDED if find_spec(each) is None]
    if missing:
        raise UsageError(f"{missing[0]} is not installed; install stable-baselines3 and sb3-contrib to check them")
    from rlverify.field.field_measuring import algorithm_tasks, measure, optimizer_tasks
    from rlverify.project.suggesting import suggestion

    known = sorted({each.name for each in (*algorithm_tasks(), *optimizer_tasks())})
    for name in names:
        if name not in known:
            raise UsageError(f"there is no {name!r} among the algorithms and optimizers{suggestion(name, known)}")
    total, done = len(algorithm_tasks(names)) + len(optimizer_tasks(names)), 0

    def on_done(task: FieldTask, seconds: float) -> None:
        nonlocal done
        done += 1
        mention(f"{done} of {total}: {task.name}, {task.variant} ({seconds:.0f} s)")

    return measure(names, executor=executor, on_done=on_done)
