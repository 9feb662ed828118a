"""The scripts that show a finding: short, without this engine, and each shows what the finding claims."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import benchmarks.field.reproductions as scripts_of_the_report
from benchmarks.field import measuring
from benchmarks.field.algorithms import ALGORITHMS
from benchmarks.field.explanations import BY_DESIGN, EXPLANATIONS
from benchmarks.field.measuring import _shown, optimizer_tasks
from rlverify.checks.engine.rule import RULES

FOLDER = next(Path(each) for each in scripts_of_the_report.__path__)
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
LIBRARIES = {"stable_baselines3", "sb3_contrib", "gymnasium", "numpy"}
STANDARD = {"copy", "zipfile"}
ARRAY = r"\[[\d. e+-]+\]"


def differing(output: str) -> bool:
    """Whether two arrays are shown, of three numbers each, that are not the same."""
    found = re.fullmatch(rf"({ARRAY}) ({ARRAY})", output)
    return found is not None and found[1] != found[2]


SHOWS: dict[str, Callable[[str], object]] = {
    "arguments_are_left_alone": lambda output: re.fullmatch(r"\{'net_arch': \[8\], '\w+': .+\}", output),
    "artefact_needs_no_unpickling": lambda output: int(output.removesuffix(" fields of the JSON file are pickles")) > 0,
    "artefact_runs_nothing_when_read": lambda output: output == "this ran while the file was read",
    "environment_can_be_copied": lambda output: output == "None",
    "learning_rate_zero_freezes": lambda output: output.startswith("moved: [") and "True" in output,
    "nan_observation_is_reported": lambda output: output == "finite: False",
    "one_sample_minibatch": lambda output: output == "finite: False",
    "pieces_equal_whole": lambda output: output == "same parameters: False",
    "resume_is_exact": lambda output: output == "same parameters: False",
    "set_parameters_copies": lambda output: output.startswith("unchanged: [") and "False" in output,
    "statistics_follow_the_policy": differing,
    "truncation_is_not_termination": lambda output: output == "the episode counts as going on: False",
    "unknown_settings_are_refused": lambda output: output.startswith("MlpExtractor(") and "Linear" not in output,
}
"""What each script has to print, by the claim of its finding."""


CONTROLS = {
    "nan_observation_is_reported": ('float("nan")', "1.0"),
    "one_sample_minibatch": ('"batch_size": 64', '"batch_size": 65'),
    "pieces_equal_whole": ("LinearSchedule(1e-3, 1e-4, 1)", "1e-3"),
    "resume_is_exact": ('PPO.load("half.zip", env=half.get_env())', "half"),
    "truncation_is_not_termination": (", handle_timeout_termination=False", ""),
    "set_parameters_copies": ("source.get_parameters()", "__import__('copy').deepcopy(source.get_parameters())"),
}
"""What to replace in a script, so that nothing is wrong: then it must print the opposite."""


def imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.partition(".")[0] for name in names}


def test_every_script_is_named_after_a_rule_with_an_explanation() -> None:
    assert set(SCRIPTS) == set(EXPLANATIONS) == set(SHOWS)
    assert set(EXPLANATIONS) <= set(RULES)


def test_what_is_by_design_is_of_an_algorithm_and_a_rule() -> None:
    names = {each.name for each in (*ALGORITHMS, *optimizer_tasks())}
    assert BY_DESIGN
    assert all(name in names and check in EXPLANATIONS for name, check in BY_DESIGN)


def test_every_explanation_is_made_of_sentences() -> None:
    for name, explanation in EXPLANATIONS.items():
        texts = (explanation.headline, explanation.cause, explanation.advice, *(bug.said for bug in explanation.known))
        assert explanation.headline, name
        assert all(text == "" or (text.endswith(".") and text.count("`") % 2 == 0) for text in texts), name


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_five_lines_after_its_imports_and_needs_the_libraries_alone(name: str) -> None:
    text = SCRIPTS[name].read_text(encoding="utf-8")
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    statements = body[len(imports) :]
    assert imports == body[: len(imports)]
    assert set().union(*map(imported, imports)) <= LIBRARIES | STANDARD
    lines = text.splitlines()[statements[0].lineno - 1 :]
    assert 1 <= len(statements) <= len([line for line in lines if line.strip()]) <= 5
    assert max(map(len, lines)) <= 120


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_shows_what_its_finding_claims(name: str) -> None:
    output = _shown(name).output
    assert SHOWS[name](output), output


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_a_script_without_its_cause_shows_the_opposite(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SCRIPTS[name].read_text(encoding="utf-8")
    cause, harmless = CONTROLS[name]
    assert text.count(cause) == 1
    (tmp_path / f"{name}.py").write_text(text.replace(cause, harmless), encoding="utf-8")
    monkeypatch.setattr(measuring, "_script", lambda check: tmp_path / f"{check}.py")
    output = _shown(name).output
    assert "True" in output
    assert "False" not in output
