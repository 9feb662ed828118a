"""Rules about models that give each other parameters."""

from __future__ import annotations

from functools import partial

from rlverify.checks import generic_faults as faults
from rlverify.checks.check_records import CheckFinding
from rlverify.checks.rule import failing, passing, rule
from rlverify.checks.session import SubjectSession


@rule(
    "isolation",
    "critical",
    "After set_parameters(get_parameters()), training one model changes nothing in the other.",
    faults=[faults.SHARING],
)
def set_parameters_copies(session: SubjectSession) -> CheckFinding:
    """Two models that exchanged parameters train apart from each other.

    If tensors are shared, a member of a population changes while another trains, without an error.
    """
    for trained in ("source", "receiver"):
        changed = session.run(partial(_changed_elsewhere, session, trained))
        if changed:
            other = "receiver" if trained == "source" else "source"
            seen = f"training the {trained} changes {len(changed)} parameters and states of optimizers of the {other}"
            return failing(seen, where=changed[0])
    return passing()


def _changed_elsewhere(session: SubjectSession, trained: str) -> list[str]:
    source, receiver = session.make(), session.make()
    session.learn(source, session.steps)
    session.adapter.set_parameters(receiver, session.adapter.get_parameters(source))
    model, other = (source, receiver) if trained == "source" else (receiver, source)
    before = session.result(other)
    session.learn(model, session.steps)
    after = session.result(other)
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]
