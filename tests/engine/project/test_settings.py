"""Settings in ``pyproject.toml``: what is wrong with them is one line that names the key."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from rlverify.project.content import open_project
from rlverify.project.settings import ReportPaths, find_root, load_settings
from rlverify.records.errors import SettingsError
from tests.engine.in_process import rlverify_here
from tests.engine.project_folders import project_in, write_settings

GOOD = 'content = "toyproject"\nunder_test = ["toyproject"]\n'


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(f"[tool.rlverify]\n{text}", encoding="utf-8")
    return path


def test_defaults(tmp_path: Path) -> None:
    settings_file(tmp_path, GOOD)
    (tmp_path / "src").mkdir()
    settings = load_settings(tmp_path)
    assert settings.root == tmp_path
    assert (settings.reports, settings.tests) == (tmp_path / "reports", tmp_path / "tests")
    assert settings.pythonpath == (tmp_path.resolve(), (tmp_path / "src").resolve())
    assert (settings.libraries, settings.command) == ((), "rlverify")
    assert settings.catalogue is None
    assert settings.documents is None


def test_paths_are_relative_to_the_project(tmp_path: Path) -> None:
    for name in ("a/b", "docs", "t"):
        (tmp_path / name).mkdir(parents=True)
    settings_file(tmp_path, GOOD + 'catalogue = "a/b"\ndocuments = "docs"\nreports = "out"\ntests = "t"\n')
    settings = load_settings(tmp_path)
    assert settings.catalogue == tmp_path / "a" / "b"
    assert settings.documents == tmp_path / "docs"
    assert settings.reports == tmp_path / "out"
    assert settings.tests == tmp_path / "t"


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        ("", "content", "is missing; add it to the table [tool.rlverify]"),
        ('content = "toyproject"\n', "under_test", "is missing"),
        (GOOD.replace("content", "contents"), "contents", "there is no such setting; did you mean 'content'?"),
        (GOOD + "colour = 1\n", "colour", "there is no such setting; known: content, under_test"),
        (GOOD.replace('["toyproject"]', '"toyproject"'), "under_test", "got 'toyproject'"),
        (GOOD.replace('["toyproject"]', "[]"), "under_test", "at least 1 item"),
        (GOOD.replace('"toyproject"\n', '"toy-project"\n'), "content", "got 'toy-project'"),
        (GOOD.replace('["toyproject"]', '"toyproject"'), "under_test", 'must be a list of texts, as in ["name"], got'),
        (GOOD + "reports = 3\n", "reports", "got 3"),
        (GOOD + 'tests = ""\n', "tests", "at least 1 character"),
        (GOOD + "libraries = [3]\n", "libraries.0", "got 3"),
    ],
)
def test_a_wrong_setting_is_named(text: str, key: str, told: str, tmp_path: Path) -> None:
    path = settings_file(tmp_path, text)
    with pytest.raises(SettingsError, match="settings") as caught:
        load_settings(tmp_path)
    line = str(caught.value)
    assert line.startswith(f"settings {path}, {key}")
    assert told in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[tool.rlverify", "cannot be read: "),
        (b"\xff\xfe", "cannot be read: "),
        (b"[tool]\nrlverify = 3\n", "[tool.rlverify] must be a table, got 3"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        open_project(tmp_path)
    assert str(caught.value).startswith(f"settings {path}: {told}")
    assert (caught.value.path, caught.value.key) == (path, "")


def test_the_nearest_folder_with_settings_is_the_project(tmp_path: Path) -> None:
    settings_file(tmp_path, GOOD)
    inner = tmp_path / "package" / "folder"
    inner.mkdir(parents=True)
    (tmp_path / "package" / "pyproject.toml").write_text('[project]\nname = "inner"\n', encoding="utf-8")
    assert find_root(inner) == tmp_path
    (inner / "pyproject.toml").write_text(f"[tool.rlverify]\n{GOOD}", encoding="utf-8")
    assert find_root(inner) == inner


def test_without_settings_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        open_project(tmp_path)
    assert str(caught.value) == (
        f"settings {tmp_path}: no pyproject.toml with a table [tool.rlverify] here or above; run `rlverify init` here, "
        "or name the project's folder with --project"
    )
    assert (caught.value.path, caught.value.key) == (tmp_path, "")
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path)
    os.mkfifo(tmp_path / "pyproject.toml")
    with pytest.raises(SettingsError, match="is no regular file"):
        load_settings(tmp_path)
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path)
    path = tmp_path / "pyproject.toml"
    assert str(caught.value) == f"settings {path}: has no table [tool.rlverify]; run `rlverify init` in {tmp_path}"
    assert (caught.value.path, caught.value.key) == (path, "")


@pytest.mark.parametrize(
    ("settings", "key", "package"),
    [({}, "content", "nowhere"), ({"under_test": ["nosuchpackage"]}, "under_test", "nosuchpackage")],
)
def test_a_package_that_is_missing_is_named_with_where_it_was_looked_for(
    settings: dict[str, object], key: str, package: str, tmp_path: Path
) -> None:
    content = "nowhere" if key == "content" else "toyproject"
    project = project_in(tmp_path, content, **settings)
    with pytest.raises(SettingsError) as caught:
        project.check()
    assert f"pyproject.toml, {key}: no package {package!r} can be found (pythonpath: {tmp_path}" in str(caught.value)
    assert "create it, or correct the name" in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["reproduce", "X-1"],
        ["audit"],
        ["gate"],
        ["gate", "--fail-fast"],
        ["report"],
        ["matrix"],
        ["new", "A-1", "--target", "a:b"],
    ],
)
def test_every_command_answers_a_missing_package_with_one_line(command: list[str], tmp_path: Path) -> None:
    write_settings(tmp_path, "nowhere")
    done = rlverify_here(*command, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "content: no package 'nowhere' can be found" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pyproject.toml"]


@pytest.mark.parametrize("name", ["compound", "compound.part", "compound.part.core", "spread.part", "alone"])
def test_packages_and_modules_under_test_are_found_without_being_imported(name: str, tmp_path: Path) -> None:
    """``spread`` has no file of its own, and ``compound`` cannot be imported."""
    files = ("compound/__init__.py", "compound/part/__init__.py", "compound/part/core.py", "spread/part.py", "alone.py")
    for path in map(tmp_path.joinpath, files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1 / 0\n", encoding="utf-8")
    project = project_in(tmp_path, under_test=[name])
    folder = tmp_path.joinpath(*name.split("."))
    place = folder if folder.is_dir() else folder.with_suffix(".py")
    assert project.code_places == {name: place, "toyproject": project.folder}


def test_a_project_can_be_sent_to_another_process(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    assert [claim.id for claim in project.claims]
    again = pickle.loads(pickle.dumps(project))  # noqa: S301  # our own object
    assert again == project
    assert "catalogue" not in vars(again)


@pytest.mark.parametrize("key", ["catalogue", "documents", "tests", "pythonpath"])
def test_a_path_that_does_not_exist_is_named(key: str, tmp_path: Path) -> None:
    value = '["nowhere"]' if key == "pythonpath" else '"nowhere"'
    path = settings_file(tmp_path, f"{GOOD}{key} = {value}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path)
    assert str(caught.value) == (
        f"settings {path}, {key}: there is no 'nowhere' in {tmp_path}; create it, or correct the path"
    )


def test_content_that_is_somebody_elses_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"content: the package 'json' that is found is .* outside the pythonpath"):
        _ = project_in(tmp_path, "json").folder


@pytest.mark.parametrize("command", ["list", "gate", "new", "init", "matrix"])
def test_help_needs_no_project(command: str, tmp_path: Path) -> None:
    done = rlverify_here(command, "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: rlverify {command} " in done.stdout


def test_the_working_folder_is_in_the_project_wherever_the_reports_are(tmp_path: Path) -> None:
    for reports in ("reports", "docs/reports", "../elsewhere"):
        paths = project_in(tmp_path / "project", reports=reports).paths
        assert paths.working == tmp_path / "project" / ".rlverify"
    assert ReportPaths(tmp_path / "mine").working == tmp_path / ".rlverify"
