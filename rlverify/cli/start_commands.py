"""The commands that start a project and a claim: `init` and `new`."""

from __future__ import annotations

import importlib.util
import inspect
import json
import keyword
import math
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rlverify.cli.console import show
from rlverify.cli.options import project_of
from rlverify.evidence.files import shown_path, write_files
from rlverify.project.catalogue_entries import IDENTIFIER, UNWRITTEN_STATEMENT, UNWRITTEN_TITLE
from rlverify.project.fingerprint import is_within, member_digest, source_digest
from rlverify.project.planting import healthy_member
from rlverify.project.settings import FILE, settings_in
from rlverify.records.errors import FaultError, SettingsError, UsageError
from rlverify.reporting.markdown import environment

TEMPLATES: Final = Path(__file__).parent / "templates"
RESERVED: Final = ("make",)
"""Modules of the probes that are no probe."""
PLAIN: Final = (bool, int, float, str, type(None))
"""Types of default values that a skeleton can repeat."""


def example_files(content: str, tests: str, *, is_distribution: bool) -> Mapping[str, str]:
    """The worked example and the workflow, by path relative to the project."""
    code = _render("example_code.py.j2")
    context = {"content": content, "tests": tests, "pin": source_digest(code, "discounted_returns")}
    return {
        f"{content}/__init__.py": '"""What rlverify verifies in this repository: claims, faults and probes."""\n',
        f"{content}/example.py": code,
        f"{content}/catalogue/claims.toml": _render("example_claim.toml.j2", **context),
        f"{content}/faults/__init__.py": '"""Known bugs, each as one function that replaces a healthy one."""\n',
        f"{content}/faults/example.py": _render("example_fault.py.j2", **context),
        f"{content}/probes/__init__.py": '"""What looks for the symptoms of the bugs."""\n',
        f"{content}/probes/example.py": _render("example_probe.py.j2", **context),
        f"{tests}/test_{content}_example.py": _render("example_test.py.j2", **context),
        ".github/workflows/rlverify.yml": _render(
            "workflow.yml.j2",
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            is_distribution=is_distribution,
            requirement=requirement(),
        ),
    }


def requirement() -> str:
    """Return what pip installs where this installation came from: the commit of a repository, or else the release.

    Where pip installed from a folder, that is the release as well, since no other machine has the folder. Source:
    PEP 610.
    """
    installed = distribution("rlverify")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if repository := origin.get("vcs_info"):
        return f"rlverify @ {repository['vcs']}+{origin['url']}@{repository['commit_id']}"
    return f"rlverify=={installed.version}"


def function_name(name: str) -> str:
    """A fault's or probe's name as that of a function and of a module."""
    plain = name.lower().replace("-", "_")
    return f"{plain}_" if keyword.iskeyword(plain) or plain in RESERVED else plain


def _signature(member: Callable[..., Any]) -> tuple[str, str]:
    """The parameters of a member without annotations, and the arguments that hand them on."""
    signature = inspect.signature(member)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    if not all(each.default is each.empty or _is_plain(each.default) for each in plain):
        return "*args, **kwargs", "*args, **kwargs"
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*{0}", inspect.Parameter.VAR_KEYWORD: "**{0}"}
    forms = {**stars, inspect.Parameter.KEYWORD_ONLY: "{0}={0}"}
    shown = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return str(shown)[1:-1], ", ".join(forms.get(each.kind, "{0}").format(each.name) for each in plain)


def _is_plain(value: object) -> bool:
    return type(value) in PLAIN and not (isinstance(value, float) and not math.isfinite(value))


def _render(template: str, **context: object) -> str:
    return environment(TEMPLATES).get_template(template).render(**context)


NO_PACKAGES = ("tests", "test", "docs", "examples", "benchmarks", "build", "dist")
"""Folders at the top of a repository that are not what is to be verified."""


def init(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The repository. [default: this one]")] = None,
    content: Annotated[str, typer.Option(metavar="NAME", help="The package for claims, faults and probes.")] = "audit",
) -> None:
    """Set up a project in a repository: settings, folders, a worked example and a workflow file."""
    root = (folder or context.obj).absolute()
    if not content.isidentifier() or keyword.iskeyword(content):
        raise UsageError(f"{content!r} cannot be the name of a package; use letters, digits and underscores")
    if importlib.util.find_spec(content) is not None and not (root / content).exists():
        raise UsageError(f"{content!r} is a package or module that is installed; choose another --content")
    pyproject = root / FILE
    if pyproject.is_file() and settings_in(pyproject) is not None:
        raise SettingsError(pyproject, "", "has settings already; nothing was changed")
    before = pyproject.read_text(encoding="utf-8").rstrip() + "\n\n" if pyproject.is_file() else ""
    setup = [name for name in ("setup.py", "setup.cfg") if (root / name).is_file()]
    is_distribution = bool({"project", "build-system"} & tomllib.loads(before).keys() or setup)
    files = example_files(content, "tests", is_distribution=is_distribution)
    facts = {
        "content": content,
        "under_test": _packages(root, content) or [content],
        "is_distribution": is_distribution,
        "has_src": (root / "src").is_dir(),
        "pytest_is_configured": _configures_pytest(root, before),
    }
    text = before + _render("settings.toml.j2", **facts)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(pyproject, "", f"takes no more tables ({error}); nothing was changed") from error
    _write_new(root, files, {FILE: text})
    show(_render("init_done.txt.j2", **facts, files=list(files), requirement=requirement()).rstrip("\n"))


def new(
    context: typer.Context,
    claim_id: Annotated[str, typer.Argument(metavar="ID", help="Of the new claim, as in BUG-1.")],
    target: Annotated[
        str, typer.Option(metavar="MODULE:MEMBER", help="What the bug replaces: package.module:Class.method.")
    ],
) -> None:
    """Write the skeleton of a claim, its fault (with the pin filled in) and its probe."""
    project = project_of(context)
    claim_id = claim_id.upper()
    if not re.fullmatch(IDENTIFIER, claim_id):
        raise UsageError(f"{claim_id!r} cannot be an id; use letters, digits and hyphens, as in BUG-1")
    if not is_within(target.partition(":")[0], (*project.settings.under_test, project.package)):
        package = target.partition(":")[0].partition(".")[0]
        raise UsageError(f"{package} is not under test; add it to under_test in {project.root / FILE}")
    catalogue = project.catalogue_folder
    if any(catalogue.glob("*.toml")) and claim_id in {claim.id for claim in project.claims}:
        raise UsageError(f"there is a claim {claim_id} already; choose another id")
    if claim_id.lower() in {*project.faults, *project.probes}:
        raise UsageError(f"there is a fault or probe {claim_id.lower()!r} already; choose another id")
    owner, _, name = target.rpartition("." if "." in target.partition(":")[2] else ":")
    try:
        member = healthy_member(owner, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FaultError(f"target {target!r} cannot be found: {error}; write package.module:Class.member") from error
    parameters, arguments = _signature(member)
    function = function_name(claim_id)
    words = {
        "id": claim_id,
        "name": claim_id.lower(),
        "function": function,
        "target": target,
        "module": target.partition(":")[0],
        "pin": member_digest(member),
        "parameters": parameters,
        "arguments": arguments,
        "is_async": inspect.iscoroutinefunction(member),
        "title": json.dumps(UNWRITTEN_TITLE),
        "statement": json.dumps(UNWRITTEN_STATEMENT),
        "tests": shown_path(project.settings.tests, project.root),
        "make": "make, " if project.make() else "",
    }
    path = catalogue / "claims.toml"
    before = path.read_text(encoding="utf-8").rstrip() + "\n" if path.is_file() else ""
    fault, probe = (shown_path(project.folder / each / f"{function}.py", project.root) for each in ("faults", "probes"))
    catalogue_file = shown_path(path, project.root)
    modules = {fault: _render("new_fault.py.j2", **words), probe: _render("new_probe.py.j2", **words)}
    claim = _render("new_claim.toml.j2", **words)
    _write_new(project.root, modules, {catalogue_file: (before + claim).lstrip()})
    show(
        f"added {claim_id} to {catalogue_file}; now",
        f"  1. write the bug in {fault}",
        f"  2. observe its symptom in {probe}",
        f"  3. rlverify reproduce {claim_id}",
    )


def _packages(root: Path, content: str) -> list[str]:
    """The packages of a repository: those in ``src``, or else those at its top."""
    for folder in (root / "src", root):
        found = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
        packages = [name for name in found if name not in (*NO_PACKAGES, content) and name.isidentifier()]
        if packages:
            return packages
    return []


def _configures_pytest(root: Path, pyproject: str) -> bool:
    """Whether a repository has settings of pytest."""
    paths = (root / name for name in ("tox.ini", "setup.cfg"))
    texts = (pyproject, *(path.read_text("utf-8") for path in paths if path.is_file()))
    has_file = any((*root.glob("*pytest.ini"), *root.glob("*pytest.toml")))
    return has_file or any(re.search(r"^\[(tool[.:])?pytest\b", text, re.MULTILINE) for text in texts)


def _write_new(root: Path, files: Mapping[str, str], replaced: Mapping[str, str]) -> None:
    """Write files that must not exist yet, and others that are replaced; all of them, or none."""
    existing = [name for name in files if (root / name).exists()]
    if existing:
        raise SettingsError(root / existing[0], "", "exists already; nothing was changed")
    write_files(root, {**files, **replaced})
