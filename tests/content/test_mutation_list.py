"""Survivors of mutation must be explained one by one, and explanations must not outlive them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.compare import LIST, Explained, is_wording, problems, read_list, read_results
from tests.mutation.sample import drawn

RESULTS = """
    rlcore.a.x_f__mutmut_1: killed
    rlcore.a.x_f__mutmut_2: survived
    rlcore.a.x_f__mutmut_3: timeout
    rlcore.a.x_f__mutmut_4: segfault
    rlcore.b.x_g__mutmut_1: no tests
    rlcore.b.x_g__mutmut_2: not checked
"""
DIFFERENCE = "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n"
SECOND = Explained("rlcore.a.x_f__mutmut_2", "return 2", "nobody reads it")


def found(*explained: Explained, asked: str = "rlcore.a.*") -> list[str]:
    return [line.splitlines()[0] for line in problems(read_results(RESULTS), explained, lambda _: DIFFERENCE, asked)]


def test_an_explained_survivor_is_no_problem() -> None:
    assert found(SECOND) == []


def test_an_unexplained_survivor_is_shown_with_its_difference() -> None:
    (told,) = problems(read_results(RESULTS), [], lambda _: DIFFERENCE, "rlcore.a.*")
    assert told == f"rlcore.a.x_f__mutmut_2: survived, and nobody says why\n{DIFFERENCE}"


def test_what_no_test_reaches_survives_and_what_was_not_run_is_unknown() -> None:
    assert found(asked="rlcore.b.*") == [
        "rlcore.b.x_g__mutmut_2: was not run",
        "rlcore.b.x_g__mutmut_1: no tests, and nobody says why",
    ]


@pytest.mark.parametrize(
    ("line", "mutant", "accepted"),
    [
        ('raise StateError("is damaged; save it again")', 'raise StateError("XXis damaged; save it againXX")', True),
        ("f(x, 'IS DAMAGED')", "f(x, 'is damaged')", True),
        ('state["step"] = 1', 'state["XXstepXX"] = 1', False),
        ('raise StateError("is damaged")', "raise StateError(None)", False),
        ('raise StateError("is damaged", 1)', 'raise StateError("XXis damagedXX", 2)', False),
        ('f("a", "b")', 'f("a", "XXbXX")', False),
        ('f("a") / g("b")', 'f("a") * g("b")', False),
        ('f["a"] and g["b"] > 0', 'f["a"] or g["b"] > 0', False),
        ('{"a": copy(x), "b": 1}', '{"a": None, "b": 1}', False),
        ('f"{len(x) + 1} of them"', 'f"{len(x) - 1} of them"', False),
        (r'"it\'s \"a\" word" + x', r'"XXit\'s \"a\" wordXX" + x', True),
    ],
)
def test_a_survivor_that_differs_in_the_words_of_a_sentence_needs_no_explanation(
    line: str, mutant: str, accepted: bool
) -> None:
    difference = f"--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n def f():\n-    {line}\n+    {mutant}\n"
    assert is_wording(difference) == accepted
    left = problems(read_results(RESULTS), [], lambda _: difference, "rlcore.a.*")
    assert left == ([] if accepted else [f"{SECOND.id}: survived, and nobody says why\n{difference}"])


@pytest.mark.parametrize(
    ("explained", "line"),
    [
        (Explained("rlcore.a.x_f__mutmut_1", "return 2", "-"), "rlcore.a.x_f__mutmut_1: is explained, and killed"),
        (Explained("rlcore.a.x_f__mutmut_3", "return 2", "-"), "rlcore.a.x_f__mutmut_3: is explained, and timeout"),
        (Explained("rlcore.a.x_f__mutmut_4", "return 2", "-"), "rlcore.a.x_f__mutmut_4: is explained, and segfault"),
        (Explained("rlcore.a.x_f__mutmut_9", "return 2", "-"), "rlcore.a.x_f__mutmut_9: is explained, and does not"),
    ],
)
def test_an_explanation_of_what_does_not_survive_is_to_go(explained: Explained, line: str) -> None:
    (told,) = found(SECOND, explained)
    assert told.startswith(line)


def test_an_explanation_is_of_one_line_and_not_of_a_number() -> None:
    (told,) = found(Explained(SECOND.id, "return 3", SECOND.why))
    assert told == "rlcore.a.x_f__mutmut_2: is another mutant than the one that is explained"


def test_a_sample_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    names = [f"rlcore.a.x_f__mutmut_{number}" for number in range(1000)]
    first = drawn(names, 300, 1)
    assert first == drawn(set(names), 300, 1) != drawn(names, 300, 2)
    assert len(set(first) & set(names)) == 300
    assert sorted(drawn(names, 2000, 1)) == sorted(names)


def test_patterns_that_are_asked_for_are_separated_by_spaces() -> None:
    left = problems(read_results(RESULTS), [], lambda _: "", f"rlcore.b.* {SECOND.id}")
    assert {each.partition(":")[0] for each in left} == {SECOND.id, "rlcore.b.x_g__mutmut_1", "rlcore.b.x_g__mutmut_2"}


def test_explanations_of_mutants_that_were_not_asked_for_are_left_alone() -> None:
    assert found(SECOND, Explained("rlcore.b.x_g__mutmut_7", "x", "-")) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[mutant]]\nid = "a"\nbecomes = "b"\n', "a needs an id, what it becomes and why"),
        ('[[mutant]]\nid = "a"\nbecomes = "b"\nwhy = ""\n', "a needs an id"),
        ('[[mutant]]\nid = "a"\nbecomes = "b"\nwhy = "c"\n' * 2, "a stands twice"),
    ],
)
def test_a_list_that_explains_nothing_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "survivors.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        read_list(path)


def test_the_committed_list_can_be_read() -> None:
    assert all(each.id.startswith(("rlcore.", "rlverify.")) for each in read_list(LIST))
