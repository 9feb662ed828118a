"""The lock file: what was measured of which code, written once for all claims and read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.evidence.lock_file import NAME, Lock, load_lock, lock_json, lock_of, measured_with
from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.errors import EvidenceError
from tests.meta.project_folders import project_in

TARGET = "toyproject.target"
PROBES = "toyproject.probes.arithmetic"
FILES = ("pyproject.toml",)


@pytest.fixture
def code(toyproject: Project) -> CurrentCode:
    return CurrentCode(toyproject)


@pytest.fixture
def lock(code: CurrentCode) -> Lock:
    executed = Executed((f"{PROBES}:clip", f"{TARGET}:clip"), FILES)
    record = code.record("abc", [PROBES], executed, Executed())
    return Lock(
        {"TOY-02": record, "TOY-03": replace(record, settings="def")},
        {"squares": code.record("", [TARGET], Executed(), Executed())},
    )


def test_a_lock_reads_back_as_it_was_written(lock: Lock, code: CurrentCode) -> None:
    assert lock_of(lock_json(lock, code), Path(NAME), code) == lock


def test_the_seed_of_a_repeated_run_is_read_back(lock: Lock, code: CurrentCode) -> None:
    """Also the first, which is 0."""
    marked = replace(
        lock, claims={"TOY-02": replace(lock.claims["TOY-02"], repeated=0), "TOY-03": lock.claims["TOY-03"]}
    )
    assert lock_of(lock_json(marked, code), Path(NAME), code) == marked


def test_functions_that_an_import_executed_are_read_back_too(code: CurrentCode) -> None:
    """The import is reached from the probe's module, and no run executed anything in it."""
    record = code.record("abc", [PROBES], Executed((f"{PROBES}:clip",)), Executed((f"{TARGET}:unused",)))
    assert f"{TARGET}:unused" in dict(record.parts)
    assert lock_of(lock_json(Lock({"TOY-02": record}), code), Path(NAME), code).claims["TOY-02"] == record


def test_functions_that_the_same_claims_executed_are_written_once(lock: Lock, code: CurrentCode) -> None:
    content = json.loads(lock_json(lock, code))
    assert content["executed"][PROBES] == [{"functions": "clip", "claims": "TOY-02 TOY-03"}]
    assert content["executed"][TARGET] == [
        {"functions": "", "plots": "squares"},
        {"functions": "clip", "claims": "TOY-02 TOY-03"},
    ]
    assert set(content["code"][TARGET]) == {"(import)", "clip"}


def test_nothing_has_changed_of_what_was_just_recorded(lock: Lock, code: CurrentCode) -> None:
    assert [code.changed(record) for record in (*lock.claims.values(), *lock.plots.values())] == [[], [], []]


def test_a_claim_that_keeps_older_evidence_keeps_its_digests(lock: Lock, code: CurrentCode) -> None:
    older = _with_other_digest(lock.claims["TOY-03"], f"{TARGET}:clip")
    mixed = Lock({**lock.claims, "TOY-03": older}, lock.plots)
    content = json.loads(lock_json(mixed, code))
    assert content["claims"]["TOY-03"]["outdated"] == {f"{TARGET}:clip": "0" * 16}
    assert "outdated" not in content["claims"]["TOY-02"]
    again = lock_of(json.dumps(content), Path(NAME), code)
    assert again == mixed
    assert code.changed(again.claims["TOY-03"]) == [f"{TARGET}:clip"]
    assert code.changed(again.claims["TOY-02"]) == []


def test_a_part_that_is_gone_is_kept_as_outdated(lock: Lock, code: CurrentCode) -> None:
    parts = (*lock.claims["TOY-02"].parts, (f"{TARGET}:gone", "1" * 16))
    older = replace(lock.claims["TOY-02"], parts=tuple(sorted(parts)))
    again = lock_of(lock_json(Lock({"TOY-02": older}), code), Path(NAME), code)
    assert code.changed(again.claims["TOY-02"]) == [f"{TARGET}:gone"]


def test_a_file_that_was_missing_when_it_was_asked_for_is_not_outdated(code: CurrentCode) -> None:
    record = code.record("abc", [TARGET], Executed((), ("missing.txt",)), Executed())
    assert dict(record.parts)["file missing.txt"] == ""
    text = lock_json(Lock({"TOY-02": record}), code)
    assert "outdated" not in json.loads(text)["claims"]["TOY-02"]
    assert lock_of(text, Path(NAME), code).claims["TOY-02"] == record


def test_a_module_that_the_file_does_not_know_is_a_change(lock: Lock, code: CurrentCode) -> None:
    """As after an import that was added, even if the digest of the importing module were forged."""
    content = json.loads(lock_json(lock, code))
    del content["code"]["toyproject.probes.make"]
    again = lock_of(json.dumps(content), Path(NAME), code)
    assert code.changed(again.claims["TOY-02"]) == ["toyproject.probes.make"]


@pytest.mark.parametrize("name", [f"{TARGET}:clip", TARGET, "rlverify.verdicts", "file pyproject.toml"])
def test_every_kind_of_part_counts(lock: Lock, code: CurrentCode, name: str) -> None:
    record = lock.claims["TOY-02"]
    assert name in dict(record.parts)
    assert code.changed(_with_other_digest(record, name)) == [name]


def _with_other_digest(record: CodeRecord, name: str) -> CodeRecord:
    parts = {**dict(record.parts), name: "0" * 16}
    return replace(record, parts=tuple(sorted(parts.items())))


def test_a_missing_file_is_an_empty_lock_and_a_broken_one_an_error(tmp_path: Path, code: CurrentCode) -> None:
    path = tmp_path / NAME
    assert load_lock(path, code) == Lock()
    for text in ("", "{}", '{"schema_version": 2}', "<<<<<<< HEAD"):
        path.write_text(text)
        with pytest.raises(EvidenceError) as caught:
            load_lock(path, code)
        assert str(caught.value).startswith(f"evidence {path}: ")
        assert str(caught.value).endswith("; run `rlverify audit --level full --update`")
    path.write_bytes(b"\xff")
    with pytest.raises(EvidenceError, match=rf"^evidence {path}: cannot be read: 'utf-8' codec"):
        load_lock(path, code)


def test_the_first_broken_field_is_named(lock: Lock, code: CurrentCode) -> None:
    content = json.loads(lock_json(lock, code))
    content["claims"]["TOY-02"]["files"] = [7]
    with pytest.raises(EvidenceError, match=r": claims\.TOY-02\.files\.0: Input should be a valid string; run "):
        lock_of(json.dumps(content), Path(NAME), code)


def test_the_day_and_the_libraries_of_a_full_audit_can_be_read_alone(lock: Lock, code: CurrentCode) -> None:
    text = lock_json(lock, code)
    assert "full_audit" not in json.loads(text)
    claims = {name: replace(record, repeated=0) for name, record in lock.claims.items()}
    day, libraries, repeated = measured_with(lock_json(Lock(claims, lock.plots, "2026-11-25"), code))
    assert (day, repeated, measured_with(text)[2]) == ("2026-11-25", 2, 0)
    (name, first), *_ = claims.items()
    claims[name] = replace(first, parts=((first.parts[0][0], "other"), *first.parts[1:]))
    assert measured_with(lock_json(Lock(claims, lock.plots), code))[2] == 1
    assert libraries == {
        name: each for name, each in json.loads(text)["libraries"].items() if name != "rlverify.verdicts"
    }
    assert measured_with("{}") == ("", {}, 0)


def test_a_claim_of_which_no_function_is_known_is_read(lock: Lock, code: CurrentCode) -> None:
    """As in a file whose `executed` was edited or merged wrongly; its runs then count as changed."""
    content = json.loads(lock_json(lock, code))
    content["executed"] = {}
    again = lock_of(json.dumps(content), Path(NAME), code)
    assert again.claims["TOY-02"].executed.functions == again.plots["squares"].executed.functions == ()


def test_the_file_holds_parts_by_kind(tmp_path: Path) -> None:
    code = CurrentCode(project_in(tmp_path, libraries=["pytest"]))
    content = json.loads(lock_json(Lock({"TOY-02": code.record("", [TARGET], Executed((), FILES), Executed())}), code))
    assert set(content["code"]) == {TARGET}
    assert [*content["files"]] == [*FILES]
    assert [*content["libraries"]] == ["pytest", "rlverify.verdicts"]


def test_the_versions_of_libraries_count(tmp_path: Path) -> None:
    code = CurrentCode(project_in(tmp_path, libraries=["pytest"]))
    record = code.record("", [TARGET], Executed(), Executed())
    assert dict(record.parts)["library pytest"] == pytest.__version__
    assert code.changed(_with_other_digest(record, "library pytest")) == ["library pytest"]
