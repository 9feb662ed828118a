"""Evidence keeps what repeats, reads back what it wrote, and believes nothing that does not follow from its counts."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlverify.evidence.evidence_files import compare, from_json, is_committable, load_folder, misfits, to_json
from rlverify.evidence.files import check_writable, sealed, write_files
from rlverify.evidence.summarising import summarise
from rlverify.project.content import Project
from rlverify.records.claims import Claim
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, Observation, Run, Variant

PATH = Path("TOY-01.json")
Content = dict[str, Any]


def _run(variant: Variant, seed: int, holds: bool, *, after: str = "é 1", executions: int | None = None) -> Run:
    seen = (Observation("count", "0", after, holds), Observation("raw", "0.1", "0.2", True, repeats=False))
    return Run(variant, seed, seen, executions)


@pytest.fixture
def claim(toyproject: Project) -> Claim:
    return toyproject.claim("TOY-01")


@pytest.fixture
def evidence(claim: Claim) -> Evidence:
    runs = [_run("healthy", seed, True) for seed in (0, 1)]
    runs += [_run("faulty", seed, False, after=f"{seed}", executions=3) for seed in (0, 1)]
    return summarise(claim, runs)


def test_runs_are_counted_by_variant_and_symptom(evidence: Evidence) -> None:
    healthy, faulty = evidence.variants
    assert (healthy.runs, healthy.held_runs, healthy.reached) == (2, 2, None)
    assert (faulty.runs, faulty.held_runs, faulty.reached) == (2, 0, True)
    assert [(each.symptom, each.held_runs, each.runs) for each in faulty.symptoms] == [("count", 0, 2), ("raw", 2, 2)]
    assert evidence.seeds == (0, 1)


def test_the_first_hint_that_a_run_has_is_kept(claim: Claim) -> None:
    runs = [replace(_run("faulty", seed, True), hint=hint) for seed, hint in enumerate((None, "imported by name", "b"))]
    assert summarise(claim, runs).variants[0].hint == "imported by name"
    assert summarise(claim, runs[:1]).variants[0].hint is None


def test_only_texts_that_repeat_are_kept(evidence: Evidence) -> None:
    healthy, faulty = evidence.variants
    assert [(each.before, each.after) for each in healthy.symptoms] == [("0", "é 1"), (None, None)]
    assert [(each.before, each.after) for each in faulty.symptoms] == [("0", None), (None, None)]


def test_of_a_value_with_other_digits_everywhere_its_words_are_kept(claim: Claim) -> None:
    seen = [Observation("raw", "1", digits, False, roughly="above 1.1") for digits in ("1.73", "1.74")]
    runs = [Run("healthy", seed, (each,)) for seed, each in enumerate(seen)]
    (kept,) = summarise(claim, runs).variants[0].symptoms
    assert (kept.before, kept.after) == ("1", "above 1.1")


def test_a_fault_is_reached_only_if_it_ran_in_every_run(claim: Claim) -> None:
    runs = [_run("faulty", 0, False, executions=5), _run("faulty", 1, False, executions=0)]
    assert summarise(claim, runs).variants[0].reached is False


def test_crashed_and_stale_runs_are_no_evidence(claim: Claim) -> None:
    runs = [_run("healthy", 0, True), Run("healthy", 1, error="boom"), Run("faulty", 0, error="changed", stale=True)]
    found = summarise(claim, runs)
    assert (found.variants[0].runs, found.variants[0].errors) == (1, ("seed 1: boom",))
    assert (found.variants[1].runs, found.variants[1].errors, found.variants[1].stale) == (0, (), "changed")
    assert not is_committable(found)


def test_evidence_reads_back_as_it_was_written(evidence: Evidence) -> None:
    text = to_json(evidence)
    assert from_json(text, PATH) == evidence
    assert text.endswith("}\n")
    assert "é" in text
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    assert json.loads(text)["verdict"] == "CONFIRMED"


def test_what_the_fault_shows_is_part_of_the_evidence(claim: Claim) -> None:
    runs = [_run("healthy", 0, True), _run("faulty", 0, False, executions=1)]
    for shows, verdict in ((("count",), "CONFIRMED"), (("raw",), "NOT REPRODUCED")):
        found = summarise(replace(claim, shows=shows), runs)
        assert json.loads(to_json(found))["verdict"] == verdict
        assert from_json(to_json(found), PATH) == found


def _forged(evidence: Evidence, change: Callable[[Content], object]) -> str:
    """A changed file with a digest that fits."""
    content = json.loads(to_json(evidence))
    change(content)
    del content["digest"]
    return sealed(content)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verdict": "REFUTED"}, "was edited after it was measured"),
        ({"fix_grade": "CURED"}, "was edited after it was measured"),
        ({"schema_version": 1}, "was edited after it was measured"),
        ({"extra": 1}, "was edited after it was measured"),
        ({"claim_id": "TOY-02"}, "is about TOY-02, not about TOY-01"),
        ({"variants": None}, "variants: Input should be a valid"),
    ],
)
def test_evidence_that_cannot_be_is_refused(evidence: Evidence, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        from_json(_forged(evidence, lambda content: content.update(change)), PATH)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("evidence TOY-01.json: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"before": "0"', '"before": "1"'),
        ('"TOY-01"', '"TOY-02"'),
        ('"reached": true', '"reached": false'),
        ('"held_runs": 0', '"held_runs": 1'),
    ],
)
def test_a_value_that_was_edited_is_refused(evidence: Evidence, old: str, new: str) -> None:
    text = to_json(evidence)
    assert text.count(old) >= 1
    with pytest.raises(
        EvidenceError, match=rf"^evidence {re.escape(str(PATH))}: was edited after .*; run `rlverify audit --update`"
    ):
        from_json(text.replace(old, new, 1), PATH)


def test_the_layout_of_a_file_may_change(evidence: Evidence) -> None:
    assert from_json(json.dumps(json.loads(to_json(evidence))), PATH) == evidence


def test_a_file_without_a_digest_is_refused(evidence: Evidence) -> None:
    content = json.loads(to_json(evidence))
    del content["digest"]
    with pytest.raises(EvidenceError, match=r"TOY-01\.json: was edited after"):
        from_json(json.dumps(content), PATH)


HEALTHY, FAULTY = 0, 1


def _of_variant(content: Content, variant: int, **fields: Any) -> None:
    content["variants"][variant].update(fields)


def test_impossible_counts_are_refused(evidence: Evidence) -> None:
    with pytest.raises(EvidenceError, match=r"3 of 2 runs is no share.*; measure it again"):
        from_json(_forged(evidence, lambda content: _of_variant(content, FAULTY, held_runs=3)), PATH)


def test_a_symptom_that_was_not_seen_in_every_run_is_possible(claim: Claim) -> None:
    holds, differs = Observation("count", "0", "0", True), Observation("total", "0", "1", False)
    runs = [Run("healthy", 0, (holds,)), Run("healthy", 1, (holds, differs))]
    found = summarise(claim, runs)
    assert [(each.held_runs, each.runs) for each in found.variants[0].symptoms] == [(2, 2), (0, 1)]
    assert from_json(to_json(found), PATH) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no evidence (JSONDecodeError"),
        ("{", "is no evidence (JSONDecodeError"),
        ("[]", "is no evidence (TypeError"),
        ("{}", "claim_id: Field required"),
    ],
)
def test_truncated_or_foreign_files_are_refused(text: str, reason: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        from_json(text, PATH)
    assert str(caught.value).startswith(f"evidence {PATH}: {reason}")
    assert str(caught.value).endswith("; measure it again")


def test_a_folder_is_loaded_whole(evidence: Evidence, tmp_path: Path) -> None:
    assert load_folder(tmp_path / "nowhere") == {}
    write_files(tmp_path, {"TOY-01.json": to_json(evidence)})
    assert load_folder(tmp_path) == {"TOY-01": evidence}
    (tmp_path / "TOY-02.json").write_bytes(b"\xff")
    with pytest.raises(EvidenceError, match=r"TOY-02\.json: cannot be read"):
        load_folder(tmp_path)
    (tmp_path / "TOY-02.json").unlink()
    os.mkfifo(tmp_path / "TOY-02.json")
    with pytest.raises(EvidenceError, match=r"TOY-02\.json: is no regular file"):
        load_folder(tmp_path)
    for folder in (tmp_path / "TOY-01.json", tmp_path / "TOY-01.json" / "evidence"):
        with pytest.raises(EvidenceError, match=r"^evidence .*TOY-01\.json: is no folder, "):
            load_folder(folder)


def test_files_are_replaced_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"a.txt": "old", "sub/b.txt": "old"})
    write_text = Path.open
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail_on_second(self: Path, *arguments: Any, **more: Any) -> Any:
        if self.name == "b.txt":
            raise full
        return write_text(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", fail_on_second)
    with pytest.raises(EvidenceError, match="No space left"):
        write_files(tmp_path, {"a.txt": "new", "sub/b.txt": "new"})
    monkeypatch.undo()
    assert [path.read_text() for path in (tmp_path / "a.txt", tmp_path / "sub/b.txt")] == ["old", "old"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "b.txt", "sub"]


def test_a_folder_that_cannot_be_written_is_found_beforehand(tmp_path: Path) -> None:
    check_writable(tmp_path / "made" / "here")
    assert (tmp_path / "made" / "here").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(EvidenceError, match=r"file/reports: cannot be written: .*nothing was changed"):
        check_writable(tmp_path / "file" / "reports")


def test_the_same_evidence_has_no_differences(evidence: Evidence) -> None:
    assert compare(evidence, from_json(to_json(evidence), PATH)) == []


def test_every_difference_is_a_sentence(evidence: Evidence) -> None:
    healthy, faulty = evidence.variants
    count, raw = faulty.symptoms
    changed = replace(faulty, symptoms=(replace(count, after="9"), replace(raw, symptom="new")), reached=False)
    assert compare(evidence, replace(evidence, variants=(healthy, changed))) == [
        "UNREACHED instead of CONFIRMED",
        "faulty: 'count' observed 9 (expected 0, holds 0/2), committed (expected 0, holds 0/2)",
        "faulty: 'new' is new",
        "faulty: 'raw' is no longer observed",
        "faulty: held in 0 of 2 runs, reached False",
    ]
    assert compare(evidence, replace(evidence, variants=(healthy,))) == ["faulty is no longer measured"]
    assert compare(replace(evidence, variants=(healthy,)), evidence) == ["faulty is new"]
    fewer = replace(faulty, symptoms=(count, replace(raw, held_runs=1)))
    assert compare(evidence, replace(evidence, variants=(healthy, fewer))) == [
        "faulty: 'raw' observed (holds 1/2), committed (holds 2/2)"
    ]
    assert compare(evidence, replace(evidence, seeds=(0, 2))) == ["seeds 0, 2 instead of 0, 1"]


def test_evidence_fits_its_claim_or_says_why_not(claim: Claim, evidence: Evidence) -> None:
    fits = replace(claim, documented_fix=None)
    assert misfits(evidence, fits) == []
    assert misfits(evidence, replace(fits, seeds=(1, 0))) == ["measured with seeds 0, 1, the claim asks for 1, 0"]
    assert misfits(evidence, claim) == [
        "measured in healthy, faulty, the claim asks for healthy, faulty, documented_fix"
    ]
    assert misfits(evidence, replace(fits, shows=("count",))) == ["measured for other symptoms than `shows` names"]
