"""What `rlverify check` imports: what can be named, and one clear error for what cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlverify.checks.engine.subjects import subject
from rlverify.checks.targets import FORM, import_target, import_targets
from rlverify.records.errors import UsageError
from tests.engine.checks.tiny_learners import CODE, write_learners


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("targets")
    write_learners(made, "target_learners")
    sys.modules.pop("target_learners", None)  # of another folder, where a process runs these tests in two parts
    return made


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return tmp_path / "broken.py"


def line_of(text: str) -> int:
    return 1 + CODE.splitlines().index(text)


def refusal(text: str, folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        import_target(text, folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("place", ["target_learners", "target_learners.py"])
def test_a_factory_is_found_by_module_and_by_file(place: str, folder: Path) -> None:
    (found,) = import_target(f"{place}:clean", folder)
    assert (found.subject.name, type(found.subject.factory()).__name__) == ("clean", "Learner")
    assert (found.file, found.line) == (folder / "target_learners.py", line_of("def clean():"))


def test_a_class_makes_models_though_it_has_a_method_learn(folder: Path) -> None:
    (found,) = import_target("target_learners:Learner", folder)
    assert type(found.subject.factory()).__name__ == "Learner"
    assert found.line == line_of("class Learner:")


def test_a_model_is_copied_for_every_check(folder: Path) -> None:
    (found,) = import_target("target_learners:a_model", folder)
    first, second = found.subject.factory(), found.subject.factory()
    assert first is not second
    assert (found.subject.name, found.line) == ("a_model", 1)


def test_a_subject_keeps_its_name_and_adapter(folder: Path) -> None:
    (found,) = import_target("target_learners:expected", folder)
    assert (found.subject.name, type(found.subject.adapter).__name__) == ("expected", "Sharing")
    assert found.subject.expected_failures == {"set_parameters_copies": "one network for both"}


def test_subjects_of_one_name_are_named_by_their_target(folder: Path) -> None:
    texts = ["target_learners:clean", "target_learners.py:clean", "target_learners:copying", "target_learners:clean"]
    found = import_targets(texts, folder)
    assert [each.subject.name for each in found] == ["target_learners:clean", "target_learners.py:clean", "copying"]


def test_the_limit_of_the_command_replaces_that_of_a_subject(folder: Path) -> None:
    assert import_targets(["target_learners:copying"], folder, 5.0)[0].subject.limit == 5.0
    assert import_targets(["target_learners:copying"], folder)[0].subject.limit == subject(dict).limit


def test_a_file_can_import_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write_learners(tmp_path / "deep", "neighbour_learners")
    (tmp_path / "deep" / "importing.py").write_text("from neighbour_learners import clean\n", encoding="utf-8")
    assert import_target("deep/importing.py:clean", tmp_path)[0].subject.name == "clean"


def test_what_an_import_prints_is_no_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "printing.py").write_text("print('hello')\nmake = dict\n", encoding="utf-8")
    import_target("printing.py:make", tmp_path)
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("text", ["learners", ":make", "learners:", "learners.py"])
def test_a_target_without_module_and_name(text: str, folder: Path) -> None:
    assert refusal(text, folder) == f"{text!r} names no factory; {FORM}"


def test_no_such_module_and_no_such_file(folder: Path) -> None:
    words = f"'gone.deep:make': there is no module 'gone' in {folder} or installed; {FORM}"
    assert refusal("gone.deep:make", folder) == words
    assert refusal("gone.py:make", folder) == f"'gone.py:make': there is no file {folder / 'gone.py'}; {FORM}"


def test_no_such_attribute(folder: Path) -> None:
    known = "'target_learners:claen': target_learners has no 'claen'; did you mean 'clean'?"
    assert refusal("target_learners:claen", folder) == known
    deep = "'target_learners:copying.factory.zzz': Learner has no 'zzz'"
    assert refusal("target_learners:copying.factory.zzz", folder) == deep


def test_an_optimizer_has_another_door(tmp_path: Path) -> None:
    (tmp_path / "own_optimizer.py").write_text("import torch\n\nclass Mine(torch.optim.SGD): pass\n", encoding="utf-8")
    said = "is an optimizer; check it by `rlverify.checks.check_optimizer(Mine)` in Python"
    assert refusal("own_optimizer.py:Mine", tmp_path) == f"'own_optimizer.py:Mine' {said}"


def test_a_factory_whose_arguments_have_defaults(folder: Path) -> None:
    assert import_target("target_learners:takes_anything", folder)[0].subject.name == "takes_anything"


IMPORTS = {
    "raise ValueError('no\\nmemory')": "importing broken.py raises ValueError: no memory (",
    "def (": "importing broken.py raises SyntaxError: ",
    "import gone_library": "importing broken.py raises ModuleNotFoundError: No module named 'gone_library'",
    "import sys; sys.exit(3)": "importing broken.py raises SystemExit: 3 (",
}


@pytest.mark.parametrize("code", IMPORTS)
def test_an_import_that_fails(code: str, broken: Path) -> None:
    broken.write_text(f"{code}\n", encoding="utf-8")
    message = refusal("broken.py:make", broken.parent)
    assert message.startswith(f"'broken.py:make': {IMPORTS[code]}")


def test_a_library_that_a_module_lacks_is_not_the_module(tmp_path: Path) -> None:
    (tmp_path / "lacks_library.py").write_text("import gone_library\n", encoding="utf-8")
    assert "importing lacks_library raises ModuleNotFoundError" in refusal("lacks_library:make", tmp_path)
