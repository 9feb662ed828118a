"""What the workflow runs exists: every target of make, every command and option of rlverify."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase
from typer.main import get_command

from rlverify.cli.app import app

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/verification.yml").read_text(encoding="utf-8"))
JOBS: dict[str, Any] = WORKFLOW["jobs"]
TRIGGERS = WORKFLOW[True]  # YAML 1.1 reads the key "on" so


def commands(job: str) -> Iterator[list[str]]:
    for step in JOBS[job]["steps"]:
        for line in step.get("run", "").splitlines():
            yield shlex.split(line.partition(" >> ")[0])


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {*re.findall(r"^([\w.-]+):", text, re.MULTILINE), ".venv/.ready"}


@pytest.mark.parametrize("job", JOBS)
def test_every_target_of_make_exists(job: str) -> None:
    asked = {word for words in commands(job) if words[0] == "make" for word in words[1:] if "=" not in word}
    assert asked - targets() == set()


def test_every_python_that_the_metadata_names_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [int(each[1]) for each in map(re.compile(r".* :: 3\.(\d+)$").match, project["classifiers"]) if each]
    oldest, newest = named[0], named[-1]
    assert named == [*range(oldest, newest + 1)]
    assert project["requires-python"] == f">=3.{oldest},<3.{newest + 1}"
    tried = [JOBS["gate"]["steps"][1]["with"]["python-version"], *JOBS["newer"]["strategy"]["matrix"]["python"]]
    assert tried == [f"3.{each}" for each in named]
    assert f"You need Python 3.{oldest} to 3.{newest}." in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_commit_runs_both_halves_of_the_tests() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    halves = dict(re.findall(r"^(test[\w-]*):.*\n\t.* -m (.+)$", makefile, re.MULTILINE))
    assert halves == {"test": '"not slow and not exhaustive"', "test-slow": "slow"}
    assert {"test", "test-slow"} <= {word for words in commands("gate") for word in words}
    in_ci = re.findall(r"make (test[\w-]*)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert in_ci == ["test", "test-slow"]


@pytest.mark.parametrize("job", JOBS)
def test_every_command_of_rlverify_exists_with_its_options(job: str) -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    for words in commands(job):
        if words[0] != ".venv/bin/rlverify":
            assert words[0] == "make"
            continue
        context = known[words[1]].make_context(words[1], words[2:], resilient_parsing=False)
        assert context.args == []


def test_every_schedule_belongs_to_its_jobs_and_every_commit_to_the_gate() -> None:
    schedules = [each["cron"] for each in TRIGGERS["schedule"]]
    conditions = {name: job["if"] for name, job in JOBS.items()}
    assert {"push", "pull_request"} <= set(TRIGGERS)
    assert conditions["gate"] == "github.event_name != 'schedule'"
    assert [sum(cron in condition for condition in conditions.values()) for cron in schedules] == [1, 4]
    weekly = next(cron for cron in schedules if cron in conditions["full"])
    nightly = next(cron for cron in schedules if cron in conditions["mutants"])
    assert weekly.split()[2:] == ["*", "*", "0"]
    assert conditions["search"] == conditions["sample"] == conditions["sensitivity"] == conditions["full"]
    assert nightly.split()[2:] == ["*", "*", "*"]


@pytest.mark.parametrize("job", ["gate", "full"])
def test_the_summary_and_the_evidence_are_kept_whatever_fails(job: str) -> None:
    steps = JOBS[job]["steps"]
    measuring = next(step for step in steps if "GITHUB_STEP_SUMMARY" in step.get("run", ""))
    artifact = next(step for step in steps if "upload-artifact" in step.get("uses", ""))
    assert artifact["if"] == "always()"
    words = shlex.split(measuring["run"])
    written = {word for option, word in pairwise(words) if option in ("--junit", "--sarif", "--json")}
    assert "junit.xml" in written
    assert written <= set(artifact["with"]["path"].split())
    assert ".rlverify/" in artifact["with"]["path"]
    assert artifact["with"]["include-hidden-files"] is True


def test_the_gate_has_the_history_that_it_compares_with() -> None:
    (checkout,) = [step for step in JOBS["gate"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["fetch-depth"] == 0


def test_a_search_tries_random_examples_and_remembers_failures() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.search(r"^search:.*\n\t(.*)$", makefile, re.MULTILINE)
    assert command is not None
    assert command[1].startswith("HYPOTHESIS_PROFILE=search ")
    found, usual = settings.get_profile("search"), settings.get_profile("default")
    assert (found.derandomize, usual.derandomize) == (False, True)
    assert found.max_examples >= 2000 > usual.max_examples
    assert found.database == DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")


def test_nothing_may_write_to_the_repository() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    uses = [step for job in JOBS.values() for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert [step["with"]["persist-credentials"] for step in uses] == [False] * len(JOBS)
