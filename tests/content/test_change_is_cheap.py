"""Code that moves asks for nothing, and code that moves a figure fails the gate: proven on a copy of this repository.

Each case takes a gate, so all of it half an hour: ``pytest -m exhaustive tests/content/test_change_is_cheap.py``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from rlverify.project.fingerprint import definitions
from tests.support.repository_copy import ROOT, commit, copy_repository, environment

MOVED = (
    ("rlcore/functional/quantile.py", ("quantile_midpoints",)),
    ("rlcore/functional/categorical.py", ("_spacing",)),
    ("rlcore/functional/categorical.py", ("_project_positions",)),
    ("rlcore/functional/categorical.py", ("categorical_mean",)),
    ("rlcore/optim/upgd_step.py", ("root_mean_square",)),
    ("rlcore/optim/upgd_step.py", ("bounded",)),
    ("rlcore/optim/upgd_step.py", ("gate",)),
    ("rlcore/ppo/losses.py", ("normalize_advantages",)),
    ("rlcore/ppo/losses.py", ("approximate_kl",)),
    ("rlcore/ppo/adaptive.py", ("require_finite",)),
    ("rlcore/functional/categorical.py", ("project", "project_returns", "_project_positions", "_spacing")),
)
"""Functions that go to a file of their own, and at the end half of a file."""


def tree_of(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def move(copy: Path, file: str, names: tuple[str, ...]) -> None:
    """Move functions to a new module next to theirs, which imports them from there."""
    path = copy / file
    source = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    imports = [
        ast.get_source_segment(source, node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    nodes = [node for name in names for node in definitions(tree, name)]
    nodes = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    assert len(nodes) == len(names)
    texts = []
    for node in sorted(nodes, key=lambda node: node.lineno, reverse=True):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
        texts.append("".join(lines[first : node.end_lineno]))
        del lines[first : node.end_lineno]
    new = path.with_name("moved_away.py")
    new.write_text("\n".join([*map(str, imports), "\n", *reversed(texts)]), encoding="utf-8")
    module = ".".join(new.relative_to(copy).with_suffix("").parts)
    last = max(node.end_lineno or 0 for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    lines.insert(last, f"from {module} import {', '.join(names)}\n")
    path.write_text("".join(lines), encoding="utf-8")


EDITS = {
    "a loss": (
        "rlcore/functional/quantile.py",
        "return (weights * huber / kappa).mean(dim=-1)",
        "return (weights * huber / kappa).mean(dim=-1) * (1 + 1e-6)",
    ),
    "a default": ("rlcore/ppo/settings.py", '"discount factor", default=0.99', '"discount factor", default=0.98'),
    "a step": (
        "rlcore/envs/resumable.py",
        '    def get_state(self) -> StateDict:\n        """Return the state of every layer',
        "    def step(self, action: Any) -> Any:\n        observation, reward, *ends = self.env.step(action)\n"
        "        return observation, 1.01 * float(reward), *ends\n\n"
        '    def get_state(self) -> StateDict:\n        """Return the state of every layer',
    ),
    "an initialiser": ("rlcore/ppo/adaptive.py", "self.decay = decay", "self.decay = 0.99 * decay"),
    "a decorator": (
        "rlcore/ppo/losses.py",
        "def normalize_advantages(",
        "def _louder(function):\n    return lambda advantages: 1.001 * function(advantages)\n\n\n@_louder\n"
        "def normalize_advantages(",
    ),
    "a partial": (
        "rlcore/ppo/losses.py",
        "def approximate_kl(",
        "normalize_advantages = __import__('functools').partial(\n"
        "    lambda scale, own, advantages: scale * own(advantages), 1.001, normalize_advantages\n)\n\n\n"
        "def approximate_kl(",
    ),
    "a cached property": (
        "rlcore/ppo/adaptive.py",
        "    @property\n    def statistics(self) -> Moments:",
        "    @__import__('functools').cached_property\n    def statistics(self) -> Moments:",
    ),
    "the kernel": ("rlcore/optim/upgd_kernel.py", "ROUNDS: Final = 10", "ROUNDS: Final = 9"),
    "the clipping": (
        "rlcore/ppo/losses.py",
        "(named.values(), max_norm, norm)",
        "(named.values(), 0.99 * max_norm, norm)",
    ),
    "an experiment": ("verification/experiments/training.py", '"n_epochs": 4', '"n_epochs": 3'),
}
"""Edits that each move a figure: file, what is in it, and what comes in its place."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of this repository with a commit before the last one."""
    made = copy_repository(tmp_path / "copy")
    (made / "README.md").write_text("words\n", encoding="utf-8")
    commit(made)
    return made


def rlverify(copy: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "rlverify.cli.entry", *arguments]
    done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize(("file", "names"), MOVED, ids=lambda each: each if isinstance(each, str) else each[0])
def test_code_that_moves_asks_for_nothing(file: str, names: tuple[str, ...], copy: Path) -> None:
    evidence = {path.name: path.read_bytes() for path in (copy / "reports").rglob("*.*") if path.suffix != ".md"}
    move(copy, file, names)
    code, said = rlverify(copy, "gate")
    assert (code, "update" in said) == (0, False), said
    assert rlverify(copy, "audit", "--update")[0] == 0
    assert {name: next((copy / "reports").rglob(name)).read_bytes() for name in evidence} == evidence


def test_every_edit_finds_its_text_so_that_the_proof_can_still_run() -> None:
    """Without this, a moved file is noticed only when somebody asks for the proof."""
    gone = [name for name, (file, old, _) in EDITS.items() if (ROOT / file).read_text(encoding="utf-8").count(old) != 1]
    moved = [(file, name) for file, names in MOVED for name in names if not definitions(tree_of(file), name)]
    assert (gone, moved) == ([], [])


SEEN_IN_SOME_SAMPLES = pytest.mark.xfail(reason="shows only where a run of these critics is in the gate's sample")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[SEEN_IN_SOME_SAMPLES] * (name == "a loss")) for name in EDITS]
)
def test_code_that_moves_a_figure_fails_the_gate(name: str, copy: Path) -> None:
    file, old, new = EDITS[name]
    path = copy / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    code, said = rlverify(copy, "gate")
    print(said)  # noqa: T201 - what made the gate fail: a figure, a probe or a pin
    assert code == 1, said
