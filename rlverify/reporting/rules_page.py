"""The page of all rules, generated from the rules themselves."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.engine.rule import RULES, Rule, first_paragraph
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.rules.known_bugs import KNOWN_BUGS
from rlverify.checks.rules.remedies import REMEDIES

HEAD: Final = """\
<!-- Generated: `rlverify check --list --format markdown > docs/checks.md`. A test compares it with the program. -->

# Checks for any algorithm

Each check is one rule, named after its function. `rlverify check package.module:factory` runs all of them on the models
that a function without arguments makes; `--check NAME` and `--family NAME` choose some.

A pass is *proven* if the check fails once a fault is planted into the subject. Each section lists these faults. Of
several faults one is enough; the record says how many were detected, and names the others.
"""

ADAPTER: Final = """\
## An adapter for your own training loop

Models of Stable-Baselines3 and sb3-contrib need none. For other code derive a class from `rlverify.checks.Adapter`,
override what your code can do (a plain training loop needs `learn`, `save` and `load`), and give it along with the
factory: `subject(make, adapter=MyAdapter())`, which is a target of `rlverify check` too. Checks that need more do not
apply, and name the method. [examples/plain_ppo/adapter.py](../examples/plain_ppo/adapter.py) is an adapter; the
documentation of the class, `help(rlverify.checks.Adapter)`, describes arguments and results.

| method | what it does |
|---|---|
"""


def rules_page() -> str:
    """Markdown: a table of all rules, then a section for each, by family."""
    families = list(dict.fromkeys(rule.family for rule in RULES.values()))
    rules = sorted(RULES.values(), key=lambda rule: families.index(rule.family))
    rows = [f"| [`{rule.name}`](#{rule.name}) | {rule.family} | {rule.severity} | {rule.expected} |" for rule in rules]
    table = "\n".join(["| check | family | severity | expected |", "|---|---|---|---|", *rows])
    sections = [
        "\n".join([f"## {family}", *(f"\n{_section(rule)}" for rule in own)])
        for family, own in groupby(rules, key=lambda rule: rule.family)
    ]
    return "\n".join([HEAD, table, "", ADAPTER + _adapter_methods(), "", "\n\n".join(sections), ""])


def _adapter_methods() -> str:
    methods = {name: method for name, method in vars(Adapter).items() if not name.startswith("_")}
    return "\n".join(
        f"| `{name}` | {first_paragraph(method).split('. ')[0].rstrip('.')}. |" for name, method in methods.items()
    )


def _section(rule: Rule) -> str:
    rests_on = ", ".join(f"[`{name}`](#{name})" for name in rule.rests_on)
    parts = [
        f"### {rule.name}",
        f"**Expected:** {rule.expected}",
        rule.rationale,
        f"- Severity: {rule.severity}\n"
        f"- Rests on: {rests_on or 'no other check'}\n"
        f"- Proven by: {faults_in_words(rule)}\n"
        f"- Remedy: {REMEDIES[rule.name]}",
    ]
    bugs = [f"- [{bug.name}]({bug.url}): {bug.said}" for bug in KNOWN_BUGS.get(rule.name, ())]
    if bugs:
        parts.append("\n".join(["Public reports of this kind of bug:", "", *bugs]))
    return "\n\n".join(parts)


def faults_in_words(rule: Rule) -> str:
    """The faults that prove a pass; where they depend on the subject, the documentation of what chooses them."""
    if documented := first_paragraph(rule.faults).rstrip("."):
        return documented[0].lower() + documented[1:]
    planted = rule.faults(SubjectSession(_no_model, Adapter()))
    return "; ".join(fault.text for fault in planted) or "no fault yet, so that every pass is unproven"


def _no_model() -> Any:
    """Stands for a factory, because fixed faults do not ask for a model."""
    raise NotImplementedError("faults that depend on the subject need a docstring")
