"""Changing the settings of a model that exists, as exploring does in population based training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from stable_baselines3.common.utils import FloatSchedule
from torch import nn

from rlcore.errors import ResumeWarning, SettingError
from rlcore.ppo import adapted_state, construction
from rlcore.ppo.arguments import check_schedule, check_schedules, reject_unknown
from rlcore.ppo.configured import ConfiguredPPO
from rlcore.ppo.optimizers import (
    default_learning_rate,
    find_optimizer,
    make_optimizer,
    names_learning_rate,
    optimizer_options,
    set_learning_rate,
)
from rlcore.ppo.resolving import resolve_settings
from rlcore.ppo.settings import PPOSettings
from rlcore.state import optimizer_state
from rlcore.warn import warn_caller

if TYPE_CHECKING:
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")

LIVE = frozenset(
    {
        *("n_epochs", "batch_size", "gamma", "gae_lambda", "normalize_advantage", "ent_coef", "vf_coef"),
        *("max_grad_norm", "target_kl", "huber_kappa", "critic_lr_multiplier", "optimizer_kwargs"),
        *("ent_coef_initial", "ent_coef_final", "ent_coef_min", "ent_coef_boost"),
        *("ent_coef_plateau_explained_variance", "ent_coef_plateau_patience"),
        *("kl_penalty_target", "kl_penalty_coef", "kl_penalty_min_coef", "kl_penalty_max_coef"),
        *("verbose", "tensorboard_log"),
        *SCHEDULES,
        *adapted_state.SCALER_SETTINGS,
    }
)
"""Settings that a model reads at every update, or that can be handed on to what does."""

FIXED = {
    **dict.fromkeys(("n_critics", "n_quantiles", "value_distribution", "policy_kwargs"), "it shapes the network"),
    **dict.fromkeys(("num_atoms", "v_min", "v_max"), "the atoms of the learnt distributions would mean other returns"),
    "n_steps": "it shapes the rollout buffer",
    "optimizer_class": "the moments of one optimizer are of no use to another",
    "variance_gradient_scaling": "the scaler's statistics would be lost; vgs_alpha=0 scales by 1 and keeps measuring",
}
"""Why some of the other settings cannot change."""


@dataclass(frozen=True)
class SettingsChange:
    """A change that has been checked: applying it to the model that it was planned for cannot fail.

    :param settings: all settings of the model as they are to be
    :param names: which of them change
    :param optimizer_options: every option of the optimizer's groups but ``lr``, as the constructor would set it
    """

    settings: PPOSettings
    names: frozenset[str]
    optimizer_options: Mapping[str, Any]

    def warn_of_losses(self, model: ConfiguredPPO, state: Mapping[str, Any]) -> None:
        """Say what of a state that the model has, or is about to have, cannot go on and starts fresh.

        :param state: parts of the training state by key; what is not there is not lost, what is damaged not looked at
        :raises ResumeWarning: where a filter makes an error of it
        """
        moments, statistics = state.get("policy.optimizer"), state.get("vgs_state")
        if "optimizer_kwargs" in self.names and isinstance(moments, Mapping):
            missing = optimizer_state.missing_moments(
                moments.get("state"), model.policy.optimizer, self.optimizer_options
            )
            if missing:
                kwargs = self.settings.optimizer_kwargs
                words = f"the optimizer has no {', '.join(missing)}, which optimizer_kwargs={kwargs!r} needs"
                warn_caller(f"{words}: it starts fresh", ResumeWarning)
        estimator = self.settings.vgs_estimator
        if isinstance(statistics, Mapping) and statistics.get("estimator") == model.vgs_estimator != estimator:
            words = f"vgs_state: the gradient statistics of {statistics.get('step_count')} steps start fresh"
            if statistics.get("step_count") != 0:
                warn_caller(f"{words}, as vgs_estimator={estimator!r} measures something else", ResumeWarning)

    def apply(self, model: ConfiguredPPO) -> None:
        """Make the settings those that train, without a word."""
        restarts_penalty = model.kl_penalty_coef != self.settings.kl_penalty_coef
        vars(model).update({name: getattr(self.settings, name) for name in self.names})
        _apply_schedules(model, self.names)
        model.rollout_buffer.gamma, model.rollout_buffer.gae_lambda = model.gamma, model.gae_lambda
        if "optimizer_kwargs" in self.names:
            _apply_optimizer_options(model, self.optimizer_options)
        _apply_learning_rate(model)
        if restarts_penalty:
            model.kl_penalty.restart()
        model.kl_penalty.keep_within_bounds()
        if "huber_kappa" in self.names:
            model.policy.values = construction.make_values(model)
        if self.names & adapted_state.SCALER_SETTINGS:
            _apply_scaler_settings(model)


def set_hyperparameters(model: ConfiguredPPO, hyperparams: Mapping[str, Any]) -> None:
    """Change settings of a live model; weights, moments, statistics and progress stay.

    The change reaches everything that holds a copy: schedules, every group of the optimizer, the rollout buffer, the
    scaler. What ``model.save()`` writes has it too. An environment's own settings (the discount by which VecNormalize
    scales rewards) are the environment's.

    :param hyperparams: settings by name, of :class:`rlcore.ppo.settings.PPOSettings` or of the model's optimizer
        (``sigma``, ``weight_decay``, ``lr``)
    :raises UnknownSettingError: for a name that the model does not know, with the nearest; nothing is changed
    :raises SettingError: for a value that cannot be used, and for a setting that needs another network, buffer or
        optimizer; nothing is changed
    :raises ResumeWarning: where a filter makes an error of what is said of moments or statistics that cannot go on;
        nothing is changed
    """
    change = plan_change(model, hyperparams)
    parts = model._training_state().parts
    change.warn_of_losses(model, {key: parts[key].capture() for key in ("policy.optimizer", "vgs_state")})
    change.apply(model)


def plan_change(model: ConfiguredPPO, hyperparams: Mapping[str, Any]) -> SettingsChange:
    """Check a change as the constructor would, without changing anything; raises as :func:`set_hyperparameters`."""
    extractor = model.policy_class.default_extractor
    return plan_settings(model, hyperparams, extractor, model._current_progress_remaining)


def plan_settings(
    present: Any, hyperparams: Mapping[str, Any], extractor: type[BaseFeaturesExtractor], remaining: float = 1.0
) -> SettingsChange:
    """:func:`plan_change` of a model that need not exist yet.

    :param present: what has every setting as an attribute
    :param extractor: the policy's default features extractor
    :param remaining: progress remaining, at which schedules are asked for their value
    """
    optimizer_class = find_optimizer(present.optimizer_class)
    known = optimizer_options(optimizer_class)
    known.pop("seed", None)  # of the noise, which a run keeps
    changes = _placed(hyperparams, list(known), present.optimizer_kwargs)
    merged = {name: getattr(present, name) for name in PPOSettings.model_fields} | changes
    settings = resolve_settings(merged, extractor, asked=())
    _check_schedules(settings, remaining)
    stand_in = {"params": [nn.Parameter(torch.zeros(1))], "lr": default_learning_rate(optimizer_class)}
    # With a seed, as none is drawn then.
    seed = {"seed": 0} if "seed" in optimizer_options(optimizer_class) else {}
    trial = make_optimizer(optimizer_class, [stand_in], {**seed, **(settings.optimizer_kwargs or {})})
    options = {name: value for name, value in trial.param_groups[0].items() if name not in ("params", "lr", "seed")}
    return SettingsChange(settings, frozenset(changes), options)


def _placed(
    hyperparams: Mapping[str, Any], known_options: Collection[str], present_options: Mapping[str, Any]
) -> dict[str, Any]:
    """The changes by top-level setting: options of the optimizer belong in ``optimizer_kwargs``."""
    unknown = [name for name in hyperparams if name not in PPOSettings.model_fields]
    reject_unknown(unknown, "DistributionalPPO", {"DistributionalPPO": [*LIVE, *known_options]})
    options = {name: value for name, value in hyperparams.items() if name not in PPOSettings.model_fields}
    changes = {name: value for name, value in hyperparams.items() if name not in options}
    if changes.get("ent_coef_initial") is not None:
        changes.setdefault("ent_coef", None)
    for name, value in changes.items():
        if name not in LIVE:
            raise SettingError(
                name,
                f"{name}={value!r} cannot change in a model that exists: "
                f"{FIXED.get(name, 'it is read when the model is built')}; build another model with it",
            )
    given = changes.get("optimizer_kwargs", present_options)
    if options and isinstance(given, Mapping):  # anything else is refused as what it is
        changes["optimizer_kwargs"] = {**given, **options}
    if names_learning_rate(changes):
        changes.setdefault("learning_rate", None)
    return changes


def _check_schedules(settings: PPOSettings, remaining: float) -> None:
    check_schedules(settings)
    for name in SCHEDULES:
        schedule = getattr(settings, name)
        if callable(schedule):
            check_schedule(name, schedule, remaining)


def _apply_schedules(model: ConfiguredPPO, names: Collection[str]) -> None:
    if "learning_rate" in names:
        model._setup_lr_schedule()
    for name in {"clip_range", "clip_range_vf"}.intersection(names):
        if getattr(model, name) is not None:
            vars(model)[name] = FloatSchedule(getattr(model, name))


def _apply_optimizer_options(model: ConfiguredPPO, options: Mapping[str, Any]) -> None:
    model.policy.optimizer_kwargs = dict(model.optimizer_kwargs)
    optimizer = model.policy.optimizer
    for group in optimizer.param_groups:
        group.update(options)
    if optimizer_state.missing_moments(optimizer.state_dict()["state"], optimizer):
        model.rebuild_optimizer()


def _apply_learning_rate(model: ConfiguredPPO) -> None:
    """Write the present rate into every group, as the next update will."""
    model.policy.critic_lr_multiplier = model.critic_lr_multiplier
    lr = model.lr_schedule(model._current_progress_remaining)
    set_learning_rate(model.policy.optimizer, lr, model.critic_lr_multiplier)


def _apply_scaler_settings(model: ConfiguredPPO) -> None:
    """Give the scaler its settings; what it measured stays unless another estimator is to measure."""
    scaler = model.variance_gradient_scaler
    if scaler is None:
        return
    state = adapted_state.under_settings(
        model, {"vgs_state": scaler.state_dict()}, adapted_state.SCALER_SETTINGS, model.optimizer_class
    )["vgs_state"]
    if state is None:
        model.variance_gradient_scaler = construction.make_scaler(model)
    else:
        scaler.load_state_dict(state)
