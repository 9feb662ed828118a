"""Measures a sample of the claims that a change does not select, and of those that it does.

``python -m tests.meta.mutated_claims SEED UNSELECTED SELECTED``, in a copy of the repository in which a file differs
from its last commit, prints one JSON object a line: first what `rlverify gate --changed` would measure, then whether
the fresh evidence of each claim is that which is committed.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Final

from rlverify.evidence.evidence_files import from_json, to_json
from rlverify.evidence.summarising import summarise
from rlverify.gating.changes import select
from rlverify.project.content import Project, open_project
from rlverify.records.claims import Claim
from rlverify.running.runner import Crash, attempt, run_here
from rlverify.running.time_limit import TIME_LIMIT
from rlverify.verdicts.verdict import judge

LIMIT_OF_SELECTED: Final = 20.0
"""Seconds for one run of a selected claim, in which the change may have made a loop endless."""


def main(seed: str, unselected: int, selected: int) -> None:
    """Do in one process, that has imported nothing of the core, as the gate does: check, select, measure."""
    project = open_project(Path.cwd())
    stopped = attempt(project.check)
    if isinstance(stopped, Crash):
        say(stopped=stopped.line)
        return
    found = select(project, project.paths, "HEAD").claim_ids
    probed = [claim for claim in project.claims if claim.figure is None]
    others = [claim for claim in probed if claim.id not in found]
    chosen = [claim for claim in probed if claim.id in found]
    say(claims=len(project.claims), selected=len(found), others=len(others))
    sampling = random.Random(seed)
    for claim in sampling.sample(others, min(unselected, len(others))):
        say(id=claim.id, is_selected=False, **outcome(project, claim, TIME_LIMIT))
    for claim in sampling.sample(chosen, min(selected, len(chosen))):
        say(id=claim.id, is_selected=True, **outcome(project, claim, LIMIT_OF_SELECTED))


def outcome(project: Project, claim: Claim, limit: float) -> dict[str, object]:
    """Whether the fresh evidence and the fresh verdict are those that are committed."""
    path = project.paths.evidence / f"{claim.id}.json"
    committed = path.read_text(encoding="utf-8")
    fresh = summarise(claim, run_here(project, claim, claim.seeds, limit=limit))
    was = judge(from_json(committed, path))
    return {"same_evidence": to_json(fresh) == committed, "was": str(was), "verdict": str(judge(fresh))}


def say(**fields: object) -> None:
    """Print at once: the next claim may end the process."""
    print(json.dumps(fields), flush=True)  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
