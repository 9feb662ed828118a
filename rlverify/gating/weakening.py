"""Lists what a change weakens: claims, evidence, documents, tests and pages that differ from the base.

The list is for a reviewer. Nothing in it is an error by itself, as there can be good reasons to remove a claim.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any, Final

from rlverify.evidence.evidence_files import FULL_AUDIT, from_json, load_file
from rlverify.evidence.files import json_of, shown_path
from rlverify.evidence.summarising import span_in_words
from rlverify.gating.git_base import Base, claims_at
from rlverify.project.content import Project
from rlverify.project.fingerprint import code_parts, without_docstrings
from rlverify.project.registry import PLOTS_FOLDER
from rlverify.project.settings import FILE, ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.errors import CatalogueError, EvidenceError
from rlverify.records.measured import Evidence
from rlverify.records.problems import Weakening, few
from rlverify.reporting.report_data import CLAIMS
from rlverify.verdicts.verdict import Record, grade_fix, judge

FOR_READERS: Final = frozenset({"id", "title", "area", "section", "document", "problem", "root_cause", "action"})
"""Fields of a claim that no verdict depends on."""
MAY_GROW: Final = ("seeds", "killed_by", "cites", "modules", "figure.runs", "figure.power", "runs")
"""Those that are weaker only if they have less."""
RENDERED: Final = ("index.md", "all-claims.md", CLAIMS, "kill-matrix.md")
"""The pages of every project. The gate compares them with what the evidence gives."""
BETWEEN_LINES: Final = " / "
MANY: Final = 40
"""Characters at the start of two lines that are left out if both have them."""


def weakened_by(project: Project, paths: ReportPaths, base: Base, records: Sequence[Record]) -> tuple[Weakening, ...]:
    """What is weaker than at the base, or may be: claims first, then their evidence, then files.

    :param records: those that were measured
    """
    try:
        found = [*_claims(claims_at(project, base), project)]
    except CatalogueError as error:
        found = [Weakening("catalogue", base.commit[:10], f"cannot be read: {error}", "")]
    stale = [Weakening("STALE evidence", each.claim.id, "", each.misfits[0]) for each in records if each.misfits]
    return (*found, *stale, *_evidence(project, paths, base), *_files(project, paths, base))


def _claims(was: Mapping[str, Claim], project: Project) -> Iterator[Weakening]:
    now = {claim.id: claim for claim in project.claims}
    for name, claim in was.items():
        parent = claim.condition_of
        if name in now:
            of_parent = _differences(was[parent], now[parent]) if parent in now else {}
            for field, texts in _differences(claim, now[name]).items():
                if of_parent.get(field) != texts:
                    yield Weakening(field.replace("_", " ").replace(".", " "), name, *texts)
        elif not parent or parent in now:
            words = ", ".join(filter(None, (claim.expected_verdict.value, claim.severity)))
            yield Weakening("condition removed" if parent else "claim removed", name, words, "")


def _differences(was: Claim, now: Claim) -> dict[str, tuple[str, str]]:
    """What a claim says less of, or something else, by field."""
    before, after = (dict(_leaves("", asdict(claim))) for claim in (was, now))
    if was.figure is not None:
        before["seeds"] = after["seeds"]  # which follow from its runs
    return {
        field: (_text(before.get(field)), _text(after.get(field)))
        for field in {**before, **after}
        if field.partition(".")[0] not in FOR_READERS and _is_weaker(field, before.get(field), after.get(field))
    }


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a record with their values; those of records inside it by both names."""
    if isinstance(value, list) or (isinstance(value, tuple) and value and isinstance(value[0], dict)):
        value = dict(enumerate(value, start=1))
    if not isinstance(value, dict):
        yield name, value
        return
    for key, each in value.items():
        yield from _leaves(f"{name}.{key}".removeprefix("."), each)


def _is_weaker(field: str, was: Any, now: Any) -> bool:
    if _text(was) == _text(now) or (field == "figure.tolerance" and None not in (was, now) and now < was):
        return False
    if field not in MAY_GROW or None in (was, now):
        return True
    return bool(set(was) - set(now)) if isinstance(was, tuple) else bool(now < was)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else "" if value is None else str(value)


def _evidence(project: Project, paths: ReportPaths, base: Base) -> Iterator[Weakening]:
    """Evidence that is gone, comes to something else, or rests on fewer runs."""
    for path in (paths.evidence.resolve() / f"{claim.id}.json" for claim in project.claims):
        was: dict[str, Any] = {}
        if path in base.changed:
            with suppress(EvidenceError):  # of another version
                was = _facts(from_json(base.text(path) or "", path))
        if was and not path.is_file():
            yield Weakening("evidence removed", path.stem, _text(was["verdict"]), "")
        elif was:
            for name, value in _facts(load_file(path)).items():
                if _is_weaker(name, was[name], value):
                    yield Weakening(f"{name} in the evidence", path.stem, _text(was[name]), _text(value))


def _facts(evidence: Evidence) -> dict[str, Any]:
    figure = evidence.figure
    mean = f"{figure.mean:g} ({span_in_words(figure.low, figure.high)})" if figure is not None else None
    runs = figure.runs if figure is not None else len(evidence.seeds)
    return {"verdict": judge(evidence), "grade of the fix": grade_fix(evidence), "runs": runs, "mean": mean}


def _files(project: Project, paths: ReportPaths, base: Base) -> Iterator[Weakening]:
    """Files that the gate does not measure, with the lines that differ; of code without comments and docstrings."""
    killing = {(project.root / test.partition("::")[0]).resolve() for each in project.claims for test in each.killed_by}
    kinds = _kinds(project, paths)
    for path in sorted(base.changed):
        kind = "killing test" if path in killing else _kind(path, kinds)
        before = base.text(path) if kind else None
        if before is None:  # new, or of no interest
            continue
        before = before.encode(errors="surrogateescape").decode(errors="replace")
        after = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        name = shown_path(path, project.root)
        if gone := [each for each in _tests(before) if each not in _tests(after)]:
            yield Weakening("test removed", name, few(gone), "")
        if kind == "test":
            continue
        lost, added = _edited(_content(path, before, json.loads), _content(path, after, partial(json_of, path=path)))
        if len(lost) == len(added):
            pairs = [*map(_from_where_they_differ, lost, added)]
            lost, added = [was for was, _ in pairs], [now for _, now in pairs]
        if lost or added:
            yield Weakening(kind, name, few(lost, between=BETWEEN_LINES), few(added, between=BETWEEN_LINES))


def _kinds(project: Project, paths: ReportPaths) -> list[tuple[Path, str]]:
    """Files and folders with what they are to a reviewer: empty if the gate compares them in another way."""
    content, reports = project.folder, paths.reports
    plots = (f"{PLOTS_FOLDER}/{each}.svg" for each in project.figure_plots)
    return [
        *((reports / name, "") for name in (*RENDERED, *(page.name for page in project.pages), *plots)),
        (paths.evidence, ""),
        (project.catalogue_folder, "catalogue"),
        (reports / FULL_AUDIT, "full audit"),
        (reports, "page or measured result"),
        (project.documents_folder, "document"),
        *((content / f"{kind}s", kind) for kind in ("probe", "fault", "experiment", "plot", "page")),
        (content, "" if project.package in project.settings.under_test else "other file of the project"),
        (project.root / FILE, "settings"),
        (project.settings.tests, "test"),
    ]


def _kind(path: Path, kinds: Sequence[tuple[Path, str]]) -> str:
    found = next((kind for place, kind in kinds if path.is_relative_to(place.resolve())), "")
    if found == "test" and not path.name.startswith("test_"):
        return "helper of tests" if path.suffix == ".py" else ""
    return "template" if path.suffix == ".j2" else found


def _tests(source: str) -> list[str]:
    """The qualified names of the tests in a source text."""
    return [name for name in code_parts(source) if name.rpartition(".")[2].startswith("test_")]


def _content(path: Path, text: str, json_of_text: Callable[[str], Any]) -> str:
    """Code without comments, docstrings and layout; of JSON and TOML a line for each value; other texts as they are."""
    try:
        if path.suffix == ".py":
            return ast.unparse(without_docstrings(ast.parse(text)))
        if path.suffix == ".json" and text:
            return _values(json_of_text(text))
        if path.suffix == ".toml":
            found = tomllib.loads(text)
            found.pop("claim", None)  # compared as claims
            return _values(found.get("tool", {}).get("rlverify", {}) if path.name == FILE else found)
    except EvidenceError:
        raise
    except (SyntaxError, ValueError):  # neither
        pass
    return text


def _values(content: Any) -> str:
    return "\n".join(f"{name}: {value}" for name, value in _leaves("", content))


def _from_where_they_differ(was: str, now: str) -> tuple[str, str]:
    """Return two long lines without the words with which both begin, as only the first characters are shown."""
    apart = next((place for place, (old, new) in enumerate(zip(was, now, strict=False)) if old != new), 0)
    start = was[:apart].rfind(" ") + 1
    return (was, now) if start < MANY else (f"... {was[start:]}", f"... {now[start:]}")


def _edited(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that are gone, and those that were added; without empty ones."""
    old, new = before.splitlines(), after.splitlines()
    edits = [each for each in SequenceMatcher(None, old, new).get_opcodes() if each[0] != "equal"]
    lost = [line.strip() for _, start, end, _, _ in edits for line in old[start:end]]
    added = [line.strip() for _, _, _, start, end in edits for line in new[start:end]]
    return [*filter(None, lost)], [*filter(None, added)]
