"""Records as text: one line for each check, and what a reader needs where something is wrong."""

from __future__ import annotations

from dataclasses import replace

from rlverify.checks import CheckFinding, CheckRecord, KnownFailure, Proof, Status, details, table

PASSED = CheckRecord(
    "ppo",
    "deterministic",
    "gates",
    "high",
    CheckFinding(Status.PASS, "two runs are equal"),
    (Proof("draw", detected=True),),
)
FAILED = replace(
    PASSED,
    check="resume_is_exact",
    proofs=(),
    reproduction="from a import b\nb()",
    finding=CheckFinding(
        Status.FAIL, "the same", "3 of 4 differ", "step 1 after the load", "restoring rng makes it exact"
    ),
)


REPORTS = "https://github.com/DLR-RM/stable-baselines3/issues"
ADVICE = (
    "    remedy: Save and load what the failure names, and restore random generators last.\n"
    f"    reports: stable-baselines3 #1643 ({REPORTS}/1643), stable-baselines3 #1526 ({REPORTS}/1526)\n"
)


def test_every_status_has_its_line() -> None:
    records = [
        PASSED,
        FAILED,
        replace(FAILED, check="short", known=KnownFailure("known")),
        replace(PASSED, check="unproven", proofs=(), unproven="the check has no fault to plant"),
        replace(PASSED, check="partly", proofs=(Proof("a", detected=True), Proof("b", detected=False))),
        replace(PASSED, check="strict", known=KnownFailure("known")),
        replace(PASSED, check="unclear", finding=CheckFinding(Status.INCONCLUSIVE, "x holds", "deterministic: fail")),
        replace(PASSED, check="not for it", finding=CheckFinding(Status.NOT_APPLICABLE, "", "no save()")),
        replace(FAILED, check="crashed", finding=CheckFinding(Status.ERROR, "x holds", "ValueError: no")),
    ]
    assert table(records) == (
        "ppo  deterministic    pass, proven by 1 fault\n"
        "ppo  resume_is_exact  fail\n"
        "    expected: the same\n"
        "    seen: 3 of 4 differ\n"
        "    where: step 1 after the load\n"
        "    why: restoring rng makes it exact\n"
        f"{ADVICE}"
        "    reproduce:\n"
        "        from a import b\n"
        "        b()\n"
        "ppo  short            fail, as expected\n"
        "    expected: the same\n"
        "    seen: 3 of 4 differ\n"
        "    where: step 1 after the load\n"
        "    why: restoring rng makes it exact\n"
        "    expected failure: known\n"
        "    reproduce:\n"
        "        from a import b\n"
        "        b()\n"
        "ppo  unproven         pass, unproven: the check has no fault to plant\n"
        "ppo  partly           pass, proven by 1 of 2 faults\n"
        "    expected: two runs are equal\n"
        "    not detected: b\n"
        "ppo  strict           pass, proven by 1 fault\n"
        "    expected: two runs are equal\n"
        "    expected failure: known\n"
        "ppo  unclear          inconclusive\n"
        "    expected: x holds\n"
        "    seen: deterministic: fail\n"
        "ppo  not for it       not applicable\n"
        "    seen: no save()\n"
        "ppo  crashed          error\n"
        "    expected: x holds\n"
        "    seen: ValueError: no\n"
        "    reproduce:\n"
        "        from a import b\n"
        "        b()\n"
    )


def test_details_begin_with_the_outcome() -> None:
    assert details(PASSED).splitlines()[0] == "ppo: deterministic: pass, proven by 1 fault"
    strict = details(replace(PASSED, known=KnownFailure("known"))).splitlines()
    assert strict[0] == "ppo: deterministic: pass, proven by 1 fault, but a failure is expected"
    assert strict[-1] == "expected failure: known"


def test_without_records_it_is_empty() -> None:
    assert table([]) == ""
