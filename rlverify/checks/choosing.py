"""Which rules a run is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rlverify.checks.all_rules import gates as _gates  # noqa: F401  # importing the package's rules registers them
from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.rule import RULES
from rlverify.project.suggesting import suggestion
from rlverify.records.errors import UsageError


def chosen_rules(checks: Sequence[str], families: Sequence[str]) -> list[str]:
    """The names of the chosen rules in the order in which they run: those named and those of the families, or all.

    :raises UsageError: if there is no rule or family of a name
    """
    _check_known("check", checks, RULES)
    _check_known("family", families, dict.fromkeys(each.family for each in RULES.values()))
    if not checks and not families:
        return list(RULES)
    return [name for name, rule in RULES.items() if name in checks or rule.family in families]


def reasons_to_run(records: Sequence[CheckRecord]) -> list[str]:
    """The rules that inconclusive records rest on and that have no record themselves.

    An inconclusive record alone would not say that something failed.
    """
    known = {each.check for each in records}
    blocked = [each.check for each in records if each.status is Status.INCONCLUSIVE]
    needed = {name for check in blocked for name in RULES[check].rests_on}
    return [name for name in RULES if name in needed - known]


def _check_known(what: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            hint = suggestion(name, known) or f"; choose from {', '.join(known)}"
            raise UsageError(f"no {what} is named {name!r}{hint}")
