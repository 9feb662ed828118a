"""Check the installed libraries, and write reports/measured/field-report.json and .md; about half an hour of one core.

What is found in algorithms goes to a file for each library and version as well, which `rlverify check` reads.

python -m benchmarks.field run [NAME...]    measures all algorithms and optimizers, or some
python -m benchmarks.field report           writes the page of the last run again
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.field.findings import of_libraries
from benchmarks.field.measuring import FieldTask, algorithm_tasks, measure, optimizer_tasks
from benchmarks.field.page import render_field_report
from benchmarks.field.records import read_field_report, text_of
from rlverify.checks.engine.twins import KNOWN
from rlverify.evidence.files import canonical_json
from rlverify.running.executors import ProcessExecutor

FOLDER: Final = Path("reports/measured")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.field", description=__doc__)
    parser.add_argument("action", choices=("run", "report"))
    known = sorted({each.name for each in (*algorithm_tasks(), *optimizer_tasks())})
    parser.add_argument("names", nargs="*", choices=[*known, []], metavar="NAME")
    parser.add_argument("--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    data = arguments.output / "field-report.json"
    if arguments.action == "run":
        executor = ProcessExecutor(os.cpu_count() or 1)
        report = measure(arguments.names, executor=executor, on_done=_say)
        arguments.output.mkdir(parents=True, exist_ok=True)
        data.write_text(text_of(report), encoding="utf-8")
    report = read_field_report(data)
    data.with_suffix(".md").write_text(render_field_report(report), encoding="utf-8")
    folder = KNOWN if arguments.output == FOLDER else arguments.output
    for name, found in of_libraries(report).items():
        text = canonical_json([asdict(each) for each in found])
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


def _say(task: FieldTask, seconds: float) -> None:
    print(f"{task.name}, {task.variant}: {seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
