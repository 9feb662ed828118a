"""What a kill matrix was measured of, as digests that do not change with comments, docstrings or layout."""

from __future__ import annotations

from collections.abc import Mapping

from verification.fingerprint import digest, module_digests, source_digest
from verification.laboratory import UNDER_TEST
from verification.matrix.plan import Bench
from verification.matrix.records import Digests


def digests_of(bench: Bench) -> Digests:
    """The digests of today; imports what is under test, to find where its faults are defined."""
    laboratory = bench.laboratory
    defined_in = {laboratory.fault(plan.fault).defined_in for plan in bench.plans}
    faults = module_digests(defined_in, within=(f"{laboratory.package}.faults",))
    return Digests(_core(bench), dict(faults), _tests(bench))


def _core(bench: Bench) -> str:
    packages = (*UNDER_TEST, bench.laboratory.package)
    named = {name for claim in bench.laboratory.claims for name in claim.modules if name.partition(".")[0] in packages}
    return digest(part for pair in module_digests(named, within=UNDER_TEST) for part in pair)


def _tests(bench: Bench) -> Mapping[str, str]:
    return {
        path.relative_to(bench.root).as_posix(): source_digest(path.read_text(encoding="utf-8"))
        for path in bench.files()
        if path.is_file()
    }
