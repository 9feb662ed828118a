"""`rlverify repin` sets the pins of stale faults, and shows what has changed in their targets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rlverify.project.fingerprint import source_digest
from tests.engine.checkouts import answer, commit, commit_of_words, copy_project, git, replace
from tests.engine.project_folders import once_in_a_process

CLIP, FASTER = "return min(max(value, low), high)", "return max(low, min(value, high))"


@pytest.fixture(scope="module")
@once_in_a_process
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout of the toy project; treat as read-only."""
    checkout = copy_project("toyproject", tmp_path_factory.mktemp("toy"))
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    commit(checkout, "toy")
    return checkout


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(committed, tmp_path / "checkout")


def repin(checkout: Path, *arguments: str) -> tuple[int, list[str], str]:
    done = answer(checkout, "repin", *arguments)
    return done.returncode, done.stdout.splitlines(), done.stderr


def pin_of(checkout: Path) -> str:
    return source_digest((checkout / "toyproject/target.py").read_text(), "clip")


def test_nothing_is_written_while_no_fault_is_stale(checkout: Path) -> None:
    faults = checkout / "toyproject/faults/arithmetic.py"
    replace(checkout / "toyproject/target.py", CLIP, f"{CLIP}  # a comment")
    before = faults.read_bytes()
    assert repin(checkout) == (0, ["0 of 7 faults were stale; check that each still plants its bug"], "")
    assert faults.read_bytes() == before


def test_the_difference_is_shown_and_the_pin_set_in_every_fault_of_the_target(checkout: Path) -> None:
    old = pin_of(checkout)
    replace(checkout / "toyproject/target.py", CLIP, FASTER)
    new = pin_of(checkout)
    code, lines, errors = repin(checkout)
    assert (code, errors) == (0, "")
    assert lines[0] == f"clip-one-sided: toyproject.target:clip ({old} -> {new})"
    assert (f"  -    {CLIP}" in lines, f"  +    {FASTER}" in lines) == (True, True)
    text = (checkout / "toyproject/faults/arithmetic.py").read_text()
    assert (old in text, text.count(new)) == (False, lines.count(f"  +    {FASTER}"))
    assert repin(checkout)[1] == ["0 of 7 faults were stale; check that each still plants its bug"]
    assert git(checkout, "diff", "--stat").count("|") == 2  # the target and the faults


def test_a_fault_may_be_chosen_and_others_stay_stale(checkout: Path) -> None:
    replace(checkout / "toyproject/target.py", CLIP, FASTER)
    assert repin(checkout, "clip-one-sided")[1][-1].startswith("1 of 1 faults were stale")
    assert repin(checkout)[1][-1].startswith("1 of 7 faults were stale")


def test_a_pin_that_is_older_than_the_base_is_told(checkout: Path) -> None:
    replace(checkout / "toyproject/target.py", CLIP, FASTER)
    commit(checkout, "faster")
    commit_of_words(checkout)
    told = "  the base does not have what was pinned; name an older one with --base"
    first = git(checkout, "rev-list", "--max-parents=0", "HEAD")
    copy = shutil.copytree(checkout, checkout.parent / "copy")
    assert told in repin(checkout)[1]
    _, lines, _ = repin(copy, "--base", first)
    assert (told in lines, f"  -    {CLIP}" in lines) == (False, True)


def test_without_git_the_whole_target_is_shown(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    replace(checkout / "toyproject/target.py", CLIP, FASTER)
    code, lines, _ = repin(checkout, "clip-one-sided")
    assert (code, f"  +     {FASTER}" in lines) == (0, True)


def test_a_target_that_is_gone_is_an_error_and_the_others_are_set(checkout: Path) -> None:
    replace(checkout / "toyproject/target.py", "def restored(", "def restored_from(")
    text = (checkout / "toyproject/target.py").read_text().replace(CLIP, FASTER)
    (checkout / "toyproject/target.py").write_text(text)
    code, lines, errors = repin(checkout)
    assert (code, "restored-forgets: its target toyproject.target:Average.restored is gone" in errors) == (1, True)
    assert any(line.startswith("clip-one-sided: ") for line in lines)


def test_a_pin_that_is_no_text_next_to_its_name_is_told(checkout: Path) -> None:
    faults = checkout / "toyproject/faults/arithmetic.py"
    text = faults.read_text().replace(f'pins="{pin_of(checkout)}"', "pins=OLD")
    faults.write_text(text.replace("\n@fault", f'\nOLD = "{pin_of(checkout)}"\n\n\n@fault', 1))
    replace(checkout / "toyproject/target.py", CLIP, FASTER)
    code, _, errors = repin(checkout, "clip-one-sided")
    said = 'clip-one-sided: toyproject.faults.arithmetic has no pins="..." next to its name; '
    said += f"set it to {pin_of(checkout)}"
    assert (code, said in errors) == (1, True), errors
