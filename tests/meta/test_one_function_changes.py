"""Which ten changes of the core the speed of ``gate --changed`` is measured with, and what each of them changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlverify.project.content import open_project
from rlverify.project.fingerprint import code_parts
from tests.meta.one_function_changes import Function, change, functions_of_core, middles

ROOT = Path(__file__).parents[2]


def function(name: str, lines: int) -> Function:
    return Function(Path("a.py"), name, lines, claims=0)


def names(found: list[Function], number: int) -> str:
    return "".join(each.name for each in middles(found, number))


def test_the_middles_of_parts_with_equally_many_lines_are_chosen() -> None:
    """Of 8 lines, the middles of two parts are after lines 2 and 6; of four parts, after 1, 3, 5 and 7."""
    found = [function("a", 1), function("b", 5), function("c", 1), function("d", 1)]
    assert names(found, 2) == "bc"
    assert names(found, 4) == "bbbd"


def test_a_function_of_which_claims_executed_more_comes_later() -> None:
    project = open_project(ROOT)
    found = functions_of_core(project)
    claims = [each.claims for each in found]
    assert claims == sorted(claims)
    assert len(found) > 900
    path = Path("rlcore/functional/utility.py")
    scale = next(each for each in found if each.name == "utility_scale" and each.path == path)
    assert scale.lines == scale_lines()
    assert 100 < scale.claims < len(project.claims)


def scale_lines() -> int:
    """Lines from its ``def`` to its last one, as it is the last function of its file or followed by two empty lines."""
    text = (ROOT / "rlcore/functional/utility.py").read_text(encoding="utf-8")
    return len(text[text.index("def utility_scale(") :].split("\n\n\n")[0].rstrip().splitlines())


SOURCE = '''"""Module."""

LIMIT = 1


class C:
    def f(self):
        """Text."""
        return LIMIT

    def g(self):  # a comment
        return 2
'''


@pytest.mark.parametrize("name", ["C.f", "C.g"])
def test_a_change_changes_one_function_and_nothing_else(name: str) -> None:
    before, after = code_parts(SOURCE.encode()), code_parts(change(SOURCE, name).encode())
    assert {each for each in before if before[each] != after[each]} == {name}
    assert before.keys() == after.keys()


def test_a_changed_function_does_what_it_did() -> None:
    names: dict[str, type] = {}
    exec(change(SOURCE, "C.f"), names)  # noqa: S102 - the source above
    assert names["C"]().f() == 1
    assert names["C"].f.__doc__ == "Text."
