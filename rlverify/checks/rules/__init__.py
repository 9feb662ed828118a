"""The rules for any algorithm; importing this package registers them in their order.

A file is about one kind of behaviour, and a rule says its family itself. `optimizers`, `transforms`, `env_states` and
`checkpoints` have the rules of the other doors, which import them. To add a rule:

1. a function with ``@rule`` and its faults, whose documentation begins with what is expected;
2. a remedy, and public reports if there are any, in `advice`;
3. a tiny trainer with its defect in ``tests/engine/checks/``, for which ``python -m benchmarks.rules`` makes a row;
4. ``python -m tests.engine.rules_page``, which writes its section of ``docs/checks.md``.
"""

from rlverify.checks.rules import (  # noqa: F401
    gates,
    identity,
    normalizers,
    numerics,
    resume,
    resumed_options,
    rollouts,
    safety,
    training_settings,
)
