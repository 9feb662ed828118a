"""What the checks find in Tianshou, skrl, TorchRL, RSL-RL and in optimizers of others: a page with a section for each.

python -m benchmarks.field.libraries [NAME...]    measures those that are installed; other sections stay as they are
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rlverify.checks import CheckRecord, Status, check_algorithm, check_optimizer

PAGE: Final = Path("reports/measured/libraries.md")
SCRIPTS: Final = Path("benchmarks/field/reproductions/libraries")
SUBJECTS: Final = {
    "tianshou": ("tianshou", ("dqn",)),
    "skrl": ("skrl", ("ppo", "dqn")),
    "torchrl": ("torchrl", ("dqn",)),
    "rsl_rl": ("rsl-rl-lib", ("ppo",)),
}
"""By name of the package: its distribution, and the functions of its test that make a small training."""
OPTIMIZERS: Final = {
    "prodigyopt": ("prodigyopt", "Prodigy"),
    "lion_pytorch": ("lion-pytorch", "Lion"),
    "adan_pytorch": ("adan-pytorch", "Adan"),
    "schedulefree": ("schedulefree", "AdamWScheduleFree"),
    "pytorch_optimizer": ("pytorch_optimizer", "AdaBelief"),
}
"""By name of the package: its distribution and a class."""
HEADER: Final = """\
# What the checks find in other libraries

Small trainings of CartPole or of a linear task, made as the documentation of each library shows it, in
`tests/engine/libraries/`. A failure is of the library in this version and with these settings. Where there is a script,
it shows the findings without rlverify. With a rate of 0, AdamWScheduleFree moves parameters by design: it averages.
"""


def section(name: str) -> Iterator[str]:
    """The lines of the section of a library that is installed."""
    distribution, factories = {**SUBJECTS, **OPTIMIZERS}[name]
    yield f"## {distribution} {metadata.version(distribution)}\n"
    if name in OPTIMIZERS:
        yield from rows(str(factories), check_optimizer(getattr(import_module(name), str(factories))))
        return
    tests = import_module(f"tests.engine.libraries.test_{name}")
    for factory in factories:
        make = getattr(tests, factory)
        make()  # what it imports is then known to every process
        yield from rows(factory, check_algorithm(make, name=factory))
    script = SCRIPTS / f"in_{name}.py"
    if script.is_file():
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, check=True, timeout=120
        )
        printed = "\n".join(line for line in done.stdout.splitlines() if "\x1b" not in line)  # which are of a log
        yield f"[{script.name}](../../{script}) prints:\n\n```text\n{printed}\n```\n"


def rows(name: str, records: Sequence[CheckRecord]) -> Iterator[str]:
    """What became of the checks of a subject: how many pass, and a row for each that does not."""
    passed = [each for each in records if each.status is Status.PASS]
    proven = sum(not each.unproven for each in passed)
    others = sum(each.status is Status.NOT_APPLICABLE for each in records)
    yield f"`{name}`: {len(passed)} checks pass, {proven} of them proven; {others} do not apply.\n"
    yield "| fails | seen | why |\n|---|---|---|"
    for each in records:
        if each.status in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE):
            texts = (f"{text:.300}".replace("|", "\\|") for text in (each.finding.seen, each.finding.why))
            yield f"| `{each.check}` | {' | '.join(' '.join(text.split()) for text in texts)} |"
    yield ""


def main() -> None:
    """Measure the libraries of some names, by default all that are installed, and write the page."""
    warnings.simplefilter("ignore")
    known = {**SUBJECTS, **OPTIMIZERS}
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    found = {each.split()[1]: each for each in re.findall(r"^## .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)}
    for name in sys.argv[1:] or [each for each in known if find_spec(each)]:
        found[known[name][0]] = "\n".join(section(name)) + "\n"
    sections = [found[distribution] for distribution, _ in known.values() if distribution in found]
    PAGE.write_text("\n\n".join(map(str.strip, [HEADER, *sections])) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
