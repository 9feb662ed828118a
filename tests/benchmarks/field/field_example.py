"""A small field report, written by hand: every kind of finding, and text that Markdown and HTML must escape."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.field.records import Checked, Effect, FieldReport, Shown
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, Proof, Status
from rlverify.records.claims import Severity

HOSTILE: Final = "a|b <img src=x> _lead `c|<d>` *e* snake_case & done"
WHERE: Final = f"policy{'.mlp_extractor' * 8}.state[0]['exp_avg']"
"""Wider than a phone, without a space."""
PRINTED: Final = "unchanged: [False] <b>"
EFFECT: Final = Effect(
    steps=2048,
    first_difference=(1, None, 7),
    distance=(0.5, 1.0, 1.5),
    returns=(100.0, 200.0, 300.0),
    returns_with=(90.0, 200.4, 250.0),
)


def record(check: str, status: Status, severity: Severity = "high", seen: str = "", **more: Any) -> CheckRecord:
    """A record whose expectation names its check."""
    finding = CheckFinding(status, f"{check} holds", seen, more.pop("where", ""), more.pop("why", ""))
    return CheckRecord("subject", check, "family", severity, finding, **more)


def fail(check: str, severity: Severity = "high", seen: str = "something else", **more: Any) -> CheckRecord:
    return record(check, Status.FAIL, severity, seen, **more)


def proven(check: str) -> CheckRecord:
    return record(check, Status.PASS, proofs=(Proof("forget", detected=True),))


def checked(name: str, *records: CheckRecord, **more: Any) -> Checked:
    """An algorithm of Stable-Baselines3 with its defaults, or what is given instead."""
    usual: dict[str, Any] = {
        "library": "stable-baselines3",
        "variant": "defaults",
        "factory": f"benchmarks.field.algorithms:{name.lower()}",
        "source": f"def {name.lower()}(): ...",
        "effects": {},
    }
    return Checked(name=name, records=records, **{**usual, **more})


def optimizer(name: str, *records: CheckRecord) -> Checked:
    return checked(name, *records, library="torch", factory=f"torch.optim:{name}", source="")


def field_example() -> FieldReport:
    """Two algorithms in both variants, one whose process ended, and two optimizers."""
    passes = [proven("deterministic"), record("settings_survive", Status.PASS, unproven="no fault")]
    shared = fail("set_parameters_copies", seen=HOSTILE, where=WHERE, why="a copy is `unchanged`")
    designed = fail("learning_rate_zero_freezes", seen="3 of 4 parameters moved", where="policy")
    own = fail("home_made", "critical", "1 < 2")
    other = [record("resume_is_exact", Status.INCONCLUSIVE), record("home_made", Status.NOT_APPLICABLE)]
    return FieldReport(
        date="2026-01-02",
        versions={"python": "3.11.9", "torch": "2.10.0"},
        constants={"ROLLOUT": "{'n_steps': 64}"},
        algorithms=(
            checked("PPO", *passes, shared, own, effects={"set_parameters_copies": EFFECT}),
            checked("PPO", *passes, shared, variant="awkward"),
            checked("TRPO", *passes, shared, designed, library="sb3-contrib"),
            checked("TRPO", *passes, *other, variant="awkward", library="sb3-contrib"),
            checked("SAC", problem="its process <ended> with exit code -11"),
        ),
        optimizers=(
            optimizer("Adam", proven("state_dict_continues"), proven("learning_rate_zero_freezes")),
            optimizer("LBFGS", fail("learning_rate_zero_freezes", seen=HOSTILE), proven("state_dict_continues")),
        ),
        reproductions=(Shown("set_parameters_copies", 'print("a" < "b")', PRINTED),),
    )
