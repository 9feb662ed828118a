"""Whether a population copies members whose statistics are ripe."""

from __future__ import annotations

import math

from rlcore.errors import SettingError


def optimizer_steps_per_update(*, n_steps: int, n_envs: int, batch_size: int, n_epochs: int) -> int:
    """Optimizer steps that one update takes, unless ``target_kl`` stops it early."""
    return n_epochs * math.ceil(n_steps * n_envs / batch_size)


def check_interval(perturbation_interval: int, steps_per_update: int, vgs_warmup_steps: int) -> None:
    """Refuse a population whose first exploits would copy gradient statistics that are still warming up.

    :param perturbation_interval: updates between exploits
    :param steps_per_update: optimizer steps an update, see :func:`optimizer_steps_per_update`
    :param vgs_warmup_steps: optimizer steps before the scaling acts
    :raises SettingError: unless ``perturbation_interval * steps_per_update > vgs_warmup_steps``
    """
    steps = perturbation_interval * steps_per_update
    if steps <= vgs_warmup_steps:
        needed = vgs_warmup_steps // steps_per_update + 1
        raise SettingError(
            "perturbation_interval",
            f"perturbation_interval={perturbation_interval} updates of {steps_per_update} optimizer steps are {steps} "
            f"steps, not more than vgs_warmup_steps={vgs_warmup_steps}, so the first exploits would hand over gradient "
            f"statistics that have not warmed up; give an interval of at least {needed} updates, or a warm-up of fewer "
            f"than {steps} steps",
        )
