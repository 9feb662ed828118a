"""The page of all checks is what the program writes, and its links are those of the table."""

from __future__ import annotations

import os
import re

import pytest

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.engine.faults import STARTS_AGAIN
from rlverify.checks.engine.rule import RULES
from rlverify.checks.rules.advice import KNOWN_BUGS
from rlverify.checks.rules.resume import ENVIRONMENT_AGAIN, SEEDS_AGAIN
from tests.engine.rules_page import faults_in_words, rules_page
from tests.support.repository_copy import ROOT

PAGE = ROOT / "docs" / "checks.md"


def test_the_committed_page_is_what_the_rules_give() -> None:
    command = "python -m tests.engine.rules_page"
    assert PAGE.read_text(encoding="utf-8") == rules_page(), f"run `{command}`"
    assert command in rules_page()


def test_each_rule_has_a_section_with_all_that_is_known() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", rules_page(), re.MULTILINE | re.DOTALL))
    assert set(sections) == set(RULES)
    for name, rule in RULES.items():
        for words in (rule.expected, rule.rationale, f"Severity: {rule.severity}", *rule.rests_on):
            assert words in sections[name], (name, words)
        for bug in KNOWN_BUGS.get(name, ()):
            assert f"[{bug.name}]({bug.url}): {bug.said}" in sections[name]


def test_the_page_describes_every_method_of_an_adapter() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+\.) \|$", rules_page(), re.MULTILINE))
    assert set(rows) == {name for name in dir(Adapter) if not name.startswith("_")}
    assert (
        rows["steps"]
        == "Environment steps in which the model is updated at least once; whole rollouts, if `learn` collects such."
    )
    assert rows["learn"] == "Train for ``steps`` environment steps more."
    for name, sentence in rows.items():
        assert " ".join((getattr(Adapter, name).__doc__ or "").split()).startswith(sentence), name


def test_every_known_bug_is_of_a_rule_and_of_a_public_repository() -> None:
    assert set(KNOWN_BUGS) <= set(RULES)
    for bug in (bug for bugs in KNOWN_BUGS.values() for bug in bugs):
        repository, number = bug.name.split(" #")
        assert re.fullmatch(rf"https://github\.com/[\w-]+/{repository}/issues/{number}", bug.url), bug
        assert bug.said.endswith(".")


def test_every_known_bug_is_a_planted_fault_of_its_rule() -> None:
    of_subjects = {each.text for each in (STARTS_AGAIN, ENVIRONMENT_AGAIN, SEEDS_AGAIN)}
    for name, bugs in KNOWN_BUGS.items():
        texts = [bug.fault for bug in bugs if bug.fault not in of_subjects]
        assert set(texts) <= set(faults_in_words(RULES[name]).split("; ")), name


def test_every_link_to_a_section_leads_to_one() -> None:
    page = rules_page()
    assert set(re.findall(r"\(#(\w+)\)", page)) <= set(re.findall(r"^### (\w+)$", page, re.MULTILINE))


DOORS = {
    "check_optimizer": {
        "load_state_dict_copies",
        "non_finite_gradients_do_not_stay",
        "huge_gradients_stay_finite",
        "half_precision_stays_finite",
    },
    "check_gradient_transform": {"nan_gradients_do_not_spread"},
    "check_env_state": {"env_state_continues", "env_state_moves"},
    "check_checkpoint": {"changed_byte_is_refused", "failed_save_keeps_the_old_file"},
}
"""What fails in the example of each door."""


@pytest.mark.parametrize("door", DOORS)
def test_the_example_of_a_door_runs_and_fails_what_it_says(
    door: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fork")  # as on systems without it: faster
    (example,) = (each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if door in each)
    exec(example, {})  # noqa: S102  # an example of our own page
    rows = re.findall(r"^\S+ +(\w+) +(pass|fail|error)", capsys.readouterr().out, re.MULTILINE)
    assert {name for name, outcome in rows if outcome != "pass"} == DOORS[door]
    assert len(rows) > len(DOORS[door])
