"""The files that `rlverify init` and `rlverify new` write, as texts; nothing here reads or writes a project."""

from __future__ import annotations

import inspect
import json
import keyword
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rlverify.project.fingerprint import source_digest

TEMPLATES: Final = Path(__file__).parent / "templates"
RESERVED: Final = ("make",)
"""Modules of the probes that are no probe."""
PLAIN: Final = (bool, int, float, str, type(None))
"""Types of default values that a skeleton can repeat."""


def settings_table(content: str, under_test: Sequence[str]) -> str:
    """The table of settings, for the end of a ``pyproject.toml``."""
    return _render("settings.toml.j2", content=content, under_test=under_test)


def pytest_table(has_src: bool) -> str:
    """Settings with which pytest finds the content package, for a repository that has none."""
    return _render("pytest.toml.j2", has_src=has_src)


def packaging_table(packages: Sequence[str]) -> str:
    """Settings with which setuptools installs these packages and not the content package next to them."""
    return _render("packaging.toml.j2", packages=packages)


def example_files(content: str, tests: str, *, is_distribution: bool) -> Mapping[str, str]:
    """The worked example and the workflow, by path relative to the project.

    :param content: name of the content package
    :param tests: folder of the tests
    :param is_distribution: whether pip can install the project
    """
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
        ),
    }


@dataclass(frozen=True)
class Skeleton:
    """A claim, a fault and a probe that only lack what is special about a bug.

    :param claim: a table for the end of a catalogue file
    :param fault: a module
    :param probe: a module
    """

    claim: str
    fault: str
    probe: str


def skeleton(
    claim_id: str,
    target: str,
    member: Callable[..., Any],
    pin: str,
    *,
    title: str,
    statement: str,
    tests: str,
    has_make: bool,
) -> Skeleton:
    """The files for a new claim.

    :param target: ``package.module:Class.member`` or ``package.module:function``
    :param member: the healthy member
    :param pin: its fingerprint
    :param has_make: whether probes are given a ``Make`` before the seed
    """
    parameters, arguments = _signature(member)
    name = claim_id.lower()
    context = {
        "id": claim_id,
        "name": name,
        "function": function_name(name),
        "target": target,
        "module": target.partition(":")[0],
        "pin": pin,
        "parameters": parameters,
        "arguments": arguments,
        "is_async": inspect.iscoroutinefunction(member),
        "title": json.dumps(title, ensure_ascii=False),
        "statement": json.dumps(statement, ensure_ascii=False),
        "tests": tests,
        "make": "make, " if has_make else "",
    }
    texts = (_render(f"new_{part}.j2", **context) for part in ("claim.toml", "fault.py", "probe.py"))
    return Skeleton(*texts)


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
    return _environment().get_template(template).render(**context)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
    )
