"""The learning rate that was asked for, in a script named like a test file: pytest finds nothing to run in it."""

from __future__ import annotations

import sys

from verification.probes.make import Make


def check(rate: float) -> bool:
    """Whether the rate asked for is that of every group."""
    model = Make().model(0, optimizer_kwargs={"lr": rate})
    return {group["lr"] for group in model.policy.optimizer.param_groups} == {rate}


def main() -> int:
    """The four cases."""
    return 0 if all(check(rate) for rate in (1e-3, 5e-3, 1e-4, 1e-2)) else 1


if __name__ == "__main__":
    sys.exit(main())
