"""The constructor of DistributionalPPO, and its settings as attributes that never differ from what trains."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, Never

import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.type_aliases import GymEnv

from rlcore.errors import SettingError
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo.arguments import Schedule, check_device, check_schedules
from rlcore.ppo.buffer import TwinCriticBuffer
from rlcore.ppo.coefficients import EntropySchedule, KLPenalty
from rlcore.ppo.policy import DistributionalRecurrentPolicy, find_policy
from rlcore.ppo.resolving import resolve_settings
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.settings import PPOSettings
from rlcore.state.registry import TrainingState
from rlcore.types import StateDict

NO_SETTINGS: Final = ("self", "policy", "env", "device", "_init_setup_model")
"""What the constructor takes next to settings."""


class ConfiguredPPO(RecurrentPPO):
    """Has every setting of :class:`rlcore.ppo.settings.PPOSettings` as keyword and as attribute."""

    clip_range: Any
    clip_range_vf: Any
    ent_coef_final: float | None
    ent_coef_min: float
    ent_coef_boost: float | None
    ent_coef_plateau_explained_variance: float
    ent_coef_plateau_patience: int
    kl_penalty_target: float | None
    kl_penalty_coef: float
    kl_penalty_min_coef: float
    kl_penalty_max_coef: float
    optimizer_class: str | type[torch.optim.Optimizer]
    optimizer_kwargs: dict[str, Any]
    critic_lr_multiplier: float
    n_critics: int
    value_distribution: Literal["quantile", "categorical"]
    n_quantiles: int
    huber_kappa: float
    num_atoms: int | None
    v_min: float | None
    v_max: float | None
    return_scale: Literal["zero_lag", "snapshot"] | None
    return_scale_decay: float
    return_scale_min_std: float
    variance_gradient_scaling: bool
    vgs_beta: float
    vgs_alpha: float
    vgs_eps: float
    vgs_warmup_steps: int
    vgs_estimator: Literal["mean", "spatial", "total", "element"]
    vgs_normalization: Literal["squared_mean", "second_moment"]
    vgs_min_scaling_factor: float
    vgs_max_normalized_variance: float
    stats_window_size: int

    policy: DistributionalRecurrentPolicy
    policy_class: type[DistributionalRecurrentPolicy]
    rollout_buffer: TwinCriticBuffer
    value_scale: ReturnScale
    entropy_schedule: EntropySchedule
    kl_penalty: KLPenalty
    variance_gradient_scaler: VarianceGradientScaler | None = None
    pending_state: dict[str, StateDict]
    _boundary: dict[str, StateDict | None] | None = None
    _last_lstm_states: Any
    _is_set_up: bool = False

    def __init__(
        self,
        policy: str | type[DistributionalRecurrentPolicy],
        env: GymEnv | str | None,
        *,
        learning_rate: float | Schedule | None = None,
        n_steps: int = 128,
        batch_size: int = 128,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float | None = None,
        ent_coef_initial: float | None = None,
        ent_coef_final: float | None = None,
        ent_coef_min: float = 0.0,
        ent_coef_boost: float | None = None,
        ent_coef_plateau_explained_variance: float = 0.0,
        ent_coef_plateau_patience: int = 3,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        kl_penalty_target: float | None = None,
        kl_penalty_coef: float = 0.2,
        kl_penalty_min_coef: float = 1e-3,
        kl_penalty_max_coef: float = 100.0,
        optimizer_class: str | type[torch.optim.Optimizer] = "adaptive_upgd",
        optimizer_kwargs: dict[str, Any] | None = None,
        critic_lr_multiplier: float = 1.0,
        n_critics: int = 2,
        value_distribution: Literal["quantile", "categorical"] = "quantile",
        n_quantiles: int = 32,
        huber_kappa: float = 1.0,
        num_atoms: int | None = None,
        v_min: float | None = None,
        v_max: float | None = None,
        return_scale: Literal["auto", "zero_lag", "snapshot"] | None = "auto",
        return_scale_decay: float = 0.9,
        return_scale_min_std: float = 1e-4,
        variance_gradient_scaling: bool = False,
        vgs_beta: float = 0.99,
        vgs_alpha: float = 0.1,
        vgs_eps: float = 1e-8,
        vgs_warmup_steps: int = 100,
        vgs_estimator: Literal["mean", "spatial", "total", "element"] = "mean",
        vgs_normalization: Literal["squared_mean", "second_moment"] = "squared_mean",
        vgs_min_scaling_factor: float = 0.1,
        vgs_max_normalized_variance: float = 100.0,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        **unknown: Never,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in PPOSettings.model_fields}
        policy_class = find_policy(policy)
        settings = resolve_settings({**given, **unknown}, policy_class.default_extractor)
        check_device(device)
        super().__init__(
            policy_class,
            env,  # type: ignore[arg-type]  # None, for a model that only predicts
            verbose=settings.verbose,  # which wrapping the environment reads
            device=device,
            _init_setup_model=False,
        )
        self.pending_state = {}
        self._adopt(settings)
        if _init_setup_model:
            self._setup_model()

    def _configure(self, given: Mapping[str, Any], asked: Collection[str] = ()) -> None:
        """Replace all settings of a model that is not set up.

        :param given: as the constructor takes them
        :param asked: those that must have an effect
        :raises SettingError: as the constructor does
        """
        self._adopt(resolve_settings(given, self.policy_class.default_extractor, asked))

    def _adopt(self, settings: PPOSettings) -> None:
        vars(self).update(dict(settings), _stats_window_size=settings.stats_window_size)
        check_schedules(settings)

    def __setattr__(self, name: str, value: Any) -> None:
        """Once the model is set up, setting an attribute that is a setting changes what trains.

        :raises SettingError: if the value cannot be used, or the setting cannot change in a model that exists
        """
        if name in PPOSettings.model_fields and self._is_set_up:
            self._change_setting(name, value)
        else:
            super().__setattr__(name, value)

    def _change_setting(self, name: str, value: Any) -> None:
        raise NotImplementedError

    def _training_state(self) -> TrainingState:
        raise NotImplementedError

    def rebuild_optimizer(self) -> None:
        raise NotImplementedError

    def own_settings(self) -> dict[str, Any]:
        """What the constructor of a subclass takes that is no setting of DistributionalPPO, as the attributes have it.

        :raises SettingError: if there is no attribute of that name
        """
        lacking = [name for name in own_names(type(self)) if not hasattr(self, name)]
        if lacking:
            raise SettingError(
                lacking[0],
                f"{type(self).__name__}() takes {lacking[0]!r} and keeps no attribute of that name, so it cannot be "
                f"saved; set self.{lacking[0]} in its constructor",
            )
        return {name: getattr(self, name) for name in own_names(type(self))}


def own_names(algorithm: type[ConfiguredPPO]) -> list[str]:
    """The names that the constructors of an algorithm's class take and DistributionalPPO does not."""
    subclasses = [each for each in algorithm.__mro__ if issubclass(each, ConfiguredPPO) and each is not ConfiguredPPO]
    constructors = [vars(each)["__init__"] for each in subclasses if "__init__" in vars(each)]
    parameters = [each for constructor in constructors for each in inspect.signature(constructor).parameters.values()]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [each.name for each in parameters if each.kind in named]
    return [name for name in dict.fromkeys(names) if name not in (*NO_SETTINGS, *PPOSettings.model_fields)]
