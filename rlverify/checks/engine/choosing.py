"""Which rules a run is about."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.checks.engine.check_records import CheckRecord, Status
from rlverify.checks.engine.rule import RULES, Rule
from rlverify.checks.engine.subjects import Subject
from rlverify.records.errors import UsageError, suggestion


def chosen_rules(
    checks: Sequence[str], families: Sequence[str], subjects: Sequence[Subject] = ()
) -> list[dict[str, Rule]]:
    """For each subject the chosen rules in the order in which they run: those named and those of the families, or all.

    Of a suite, the rules are its checks and claims. One that is named can be that of another subject.

    :param subjects: what is checked; without any, the rules for any algorithm
    """
    every = [RULES if each.rules is None else each.rules for each in subjects] or [RULES]
    known = {name: rule for own in every for name, rule in own.items()}
    families_known = dict.fromkeys(each.family for each in known.values())
    for what, names, options in (("check", checks, [*known]), ("family", families, [*families_known])):
        for name in names:
            if name not in options:
                hint = suggestion(name, options) or f"; choose from {', '.join(options)}"
                raise UsageError(f"no {what} is named {name!r}{hint}")
    is_all = not checks and not families
    chosen = [
        {name: rule for name, rule in own.items() if is_all or name in checks or rule.family in families}
        for own in every
    ]
    for made, own in zip(subjects, chosen, strict=False):
        if not own:
            others = "choose others" if made.rules is None else f"it has {', '.join(made.rules) or 'no checks'}"
            raise UsageError(f"no check was chosen for {made.name}, so nothing would be checked; {others}")
    return chosen


def reasons_to_run(records: Sequence[CheckRecord], made: Subject) -> list[str]:
    """The rules that inconclusive records rest on and that have no record themselves."""
    known = {each.check for each in records}
    blocked = [each.check for each in records if each.status is Status.INCONCLUSIVE]
    needed = {name for check in blocked for name in made.known_rules[check].rests_on}
    return [name for name in RULES if name in needed - known]
