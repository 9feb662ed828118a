"""What the modules of a content package register, and the names of pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlverify.project import registry
from rlverify.project.registry import Page, Registry, page
from rlverify.records.errors import RegistrationError
from rlverify.reporting.report_data import ReportData
from tests.engine.reporting.records import simple


def registering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


ADD = "from tests.engine.project.test_registry import NUMBERS\nNUMBERS.add({!r}, 1, __name__)\n"
NUMBERS: Registry[int] = Registry("number")


def test_modules_of_the_package_and_the_package_itself_register(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "regone/__init__.py": ADD.format("own"),
        "regone/part.py": ADD.format("part"),
        "regone2.py": ADD.format("no"),
    }
    registering(tmp_path, monkeypatch, files)
    __import__("regone2")
    assert set(NUMBERS.load("regone")) == {"own", "part"}


def test_what_a_module_prints_stays_out_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registering(tmp_path, monkeypatch, {"regloud/__init__.py": "", "regloud/part.py": "print('loud')\n"})
    NUMBERS.load("regloud")
    assert capsys.readouterr() == ("", "loud\n")


def test_a_single_module_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registering(tmp_path, monkeypatch, {"regflat.py": ADD.format("flat")})
    assert set(NUMBERS.load("regflat")) == {"flat"}


def test_without_the_package_there_is_nothing() -> None:
    assert NUMBERS.load("nosuchpackage") == {}


def test_a_name_is_registered_once() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("one", 1, "first.module")
    with pytest.raises(RegistrationError, match=r"two numbers are named 'one': in first.module and second.module"):
        registry.add("one", 2, "second.module")
    assert registry.entries == {"one": 1}


@pytest.mark.parametrize("name", ["index.md", "claims.md", "kill-matrix.md", "../escape.md", "folder/page.md", "mine"])
def test_a_page_cannot_take_another_files_name(name: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        page(name, title="t", about="a", documents=["d"])
    assert str(caught.value) == (
        f"a page cannot be named {name!r}; choose a file name that ends with .md, "
        "other than index.md, all-claims.md, claims.md, kill-matrix.md"
    )


def test_a_page_is_registered_with_what_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: Registry[Page] = Registry("page")
    monkeypatch.setattr(registry, "PAGES", pages)

    def render(data: ReportData) -> str:
        return str(data)

    register = page("mine.md", title="Mine", about="all of mine", documents=["notes", "plan"])
    assert register(render) is render
    assert pages.entries == {"mine.md": Page("mine.md", "Mine", "all of mine", ("notes", "plan"), render)}
    with pytest.raises(RegistrationError, match=rf"^two pages are named 'mine.md': in {__name__} and {__name__}; "):
        register(render)


@pytest.mark.parametrize(
    ("module", "registry", "register"),
    [(registry, "PROBES", registry.probe), (registry, "EXPERIMENTS", registry.experiment)],
)
def test_a_decorated_function_is_registered_as_it_is(
    module: ModuleType, registry: str, register: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: Registry[Any] = Registry("thing")
    monkeypatch.setattr(module, registry, registered)

    def measure() -> None: ...

    assert register("mine")(measure) is measure
    assert registered.entries == {"mine": measure}
    with pytest.raises(RegistrationError, match=rf"^two things are named 'mine': in {__name__} and {__name__}; "):
        register("mine")(measure)


def test_a_page_takes_a_catalogue_file_or_a_document() -> None:
    registry = tuple(
        Page(f"{name}.md", name, "", (key,), lambda _: "") for name, key in (("file", "my_claims"), ("document", "002"))
    )
    data = ReportData((), pages=registry)
    assert data.home(simple(1, document="my_claims")) == "file.md"
    assert data.home(simple(1, document="002_toy")) == "document.md"
    assert data.home(simple(1, document="my_other")) == "claims.md"
