"""Construction of a model: its constructor and attributes, the spaces it takes, and what is built from its settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, get_type_hints

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import FloatSchedule

from rlcore.errors import SettingError
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo.adaptive import EntropySchedule, KLPenalty, ReturnScale
from rlcore.ppo.losses import ValueDistribution, make_values
from rlcore.ppo.policy import DistributionalRecurrentPolicy, TwinCriticBuffer, buffer_class, find_policy
from rlcore.ppo.settings import (
    SCALER,
    OwnSettings,
    PPOSettings,
    SharedSettings,
    declares_keywords,
    find_optimizer,
    part_of,
    resolve_settings,
)
from rlcore.state.training import TrainingState
from rlcore.types import StateDict

P = ParamSpec("P")

if TYPE_CHECKING:

    @declares_keywords
    class _Keywords(OwnSettings, SharedSettings):
        """The constructor as type checkers and editors see it."""

        policy: str | type[DistributionalRecurrentPolicy] = Field(kw_only=False)
        env: GymEnv | str | None = Field(kw_only=False)
        device: torch.device | str = "auto"
        _init_setup_model: bool = True

    class _Base(RecurrentPPO, OwnSettings):
        """The settings as attributes."""

else:
    _Base, _Keywords = RecurrentPPO, object


def _takes_settings(
    keywords: Callable[P, object],  # noqa: ARG001  # read by type checkers
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the settings as keywords, also for ``inspect.signature`` and ``help``."""

    def decorate(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        types, signature = get_type_hints(PPOSettings), inspect.signature(constructor)
        settings = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[name])
            for name, field in PPOSettings.model_fields.items()
        ]
        own = list(signature.parameters.values())
        constructor.__signature__ = signature.replace(parameters=[*own[:3], *settings, *own[3:-1]])  # type: ignore[attr-defined]
        return constructor

    return decorate


class ConfiguredPPO(_Base):
    """Has every setting of :class:`rlcore.ppo.settings.PPOSettings` as keyword and as attribute."""

    clip_range: Any
    clip_range_vf: Any
    optimizer_kwargs: dict[str, Any]
    return_scale: Literal["zero_lag", "snapshot"] | None
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

    @_takes_settings(_Keywords)
    def __init__(
        self,
        policy: str | type[DistributionalRecurrentPolicy],
        env: GymEnv | str | None,
        *,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        **given: Any,
    ) -> None:
        settings = resolve_settings(given)
        check_device(device)
        super().__init__(
            find_policy(policy),
            env,  # type: ignore[arg-type]  # None, for a model that only predicts
            verbose=settings.verbose,  # which wrapping the environment reads
            device=device,
            _init_setup_model=False,
        )
        self.pending_state = {}
        self._adopt(settings)
        if _init_setup_model:
            self._setup_model()

    def _adopt(self, settings: PPOSettings) -> None:
        schedules = {name: getattr(settings, name) for name in ("clip_range", "clip_range_vf")}
        wrapped = {name: FloatSchedule(given) for name, given in schedules.items() if given is not None}
        vars(self).update({**dict(settings), **wrapped}, _stats_window_size=settings.stats_window_size)

    def _training_state(self) -> TrainingState:
        raise NotImplementedError

    def rebuild_optimizer(self) -> None:
        raise NotImplementedError


SUPPORTED: Final = (
    "'MlpLstmPolicy' reads Box, Discrete, MultiDiscrete and MultiBinary, 'CnnLstmPolicy' images, and "
    "'MultiInputLstmPolicy' one Dict of these; actions are a Box of floats with finite bounds, Discrete, MultiDiscrete "
    "or MultiBinary, of at most one dimension but Box; Discrete and MultiDiscrete count from 0, and nothing is empty"
)


def _is_supported(space: Any, *, as_action: bool) -> bool:
    """Return True for a space of :data:`SUPPORTED`."""
    shape: Any = getattr(space, "shape", None)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return bool(shape != (0,) and len(shape) <= 1 and not np.any(space.start))
    if not isinstance(space, spaces.Box | spaces.MultiBinary) or 0 in shape:
        return False
    if not as_action:
        return bool(shape)
    if isinstance(space, spaces.Box):
        return bool(space.is_bounded() and space.dtype.kind == "f")
    return isinstance(space.n, int)


def require_spaces(
    observation_space: Any, action_space: Any, policy_class: type[DistributionalRecurrentPolicy] | None = None
) -> None:
    """Raise SettingError unless the policy (None: any policy) takes the spaces."""
    is_dict = isinstance(observation_space, spaces.Dict)
    parts = list(observation_space.values()) if is_dict else [observation_space]
    readable = bool(parts) and all(_is_supported(part, as_action=False) for part in parts)
    if policy_class is not None and policy_class.takes_dict is not is_dict:
        readable = False
    if not readable or not _is_supported(action_space, as_action=True):
        side = f"actions are {action_space!r}" if readable else f"observations are {observation_space!r}"
        shown = " ".join(side.split())[:150]
        raise SettingError("env", f"the {shown}, which the policy does not take: {SUPPORTED}")


def make_policy(model: ConfiguredPPO) -> DistributionalRecurrentPolicy:
    """Build the network with its optimizer, on the model's device."""
    options = {
        "critic_lr_multiplier": model.critic_lr_multiplier,
        "optimizer_class": find_optimizer(model.optimizer_class),
        "optimizer_kwargs": dict(model.optimizer_kwargs),
    }
    return build_policy(model, make_values(model, model.value_scale), **options).to(model.device)


def build_policy(model: ConfiguredPPO, values: ValueDistribution, **options: Any) -> DistributionalRecurrentPolicy:
    """Build the network on the default device."""
    return model.policy_class(
        model.observation_space,
        model.action_space,
        model.lr_schedule,
        n_critics=model.n_critics,
        values=values,
        **options,
        **model.policy_kwargs,
    )


def make_buffer(model: ConfiguredPPO) -> TwinCriticBuffer:
    """Build an empty rollout buffer for the policy's LSTM states."""
    lstm = model.policy.lstm_actor
    return buffer_class(model.observation_space)(
        model.n_steps,
        model.observation_space,
        model.action_space,
        (model.n_steps, lstm.num_layers, model.n_envs, lstm.hidden_size),
        model.device,
        gamma=model.gamma,
        gae_lambda=model.gae_lambda,
        n_envs=model.n_envs,
        n_critics=model.n_critics,
    )


def initial_lstm_states(model: ConfiguredPPO) -> RNNStates:
    """Return zeros, each of shape (layers, n_envs, hidden size)."""
    lstm = model.policy.lstm_actor
    shape = (lstm.num_layers, model.n_envs, lstm.hidden_size)
    hidden = [torch.zeros(shape, device=model.device) for _ in range(4)]
    return RNNStates((hidden[0], hidden[1]), (hidden[2], hidden[3]))


def make_scaler(model: ConfiguredPPO) -> VarianceGradientScaler | None:
    """Build a scaler that has measured nothing; None without ``variance_gradient_scaling``."""
    if not model.variance_gradient_scaling:
        return None
    settings = {name.removeprefix("vgs_"): getattr(model, name) for name in part_of(SCALER)}
    return VarianceGradientScaler(model.policy.named_parameters(), **settings)


def check_device(device: torch.device | str, setting: str = "device") -> None:
    """Raise SettingError, which names ``setting``, for a CUDA device that this machine does not have."""
    wanted, n_cuda = torch.device("cpu" if device == "auto" else device), torch.cuda.device_count()
    if wanted.type == "cuda" and (wanted.index or 0) >= n_cuda:
        reason = f"{setting}={device!r}, but this machine has {n_cuda or 'no'} CUDA device; use 'cpu' or 'auto'"
        raise SettingError(setting, reason)
