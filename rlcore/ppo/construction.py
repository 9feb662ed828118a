"""Construction of a model: its constructor and attributes, the spaces it takes, and what is built from its settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, get_type_hints

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import FloatSchedule

from rlcore.checkpoint.refusal import unusable
from rlcore.errors import SettingError, StateError
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo import weights as weight_checks
from rlcore.ppo.buffer import TwinCriticBuffer, buffer_class
from rlcore.ppo.coefficients import EntropySchedule, KLPenalty
from rlcore.ppo.policy import DistributionalRecurrentPolicy, find_policy
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.settings import (
    SCALER,
    OwnSettings,
    PPOSettings,
    SharedSettings,
    check_device,
    declares_keywords,
    find_optimizer,
    part_of,
    resolve_settings,
)
from rlcore.ppo.values import VALUE_DISTRIBUTIONS, ValueDistribution
from rlcore.state.registry import TrainingState
from rlcore.types import StateDict

NO_SETTINGS: Final = ("self", "policy", "env", "device", "_init_setup_model")
"""What the constructor takes next to settings."""
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

    def _configure(self, given: Mapping[str, Any], asked: Collection[str] = ()) -> None:
        """Replace all settings of a model that is not set up; those that are ``asked`` for must have an effect."""
        self._adopt(resolve_settings(given, asked))

    def _adopt(self, settings: PPOSettings) -> None:
        schedules = {name: getattr(settings, name) for name in ("clip_range", "clip_range_vf")}
        wrapped = {name: FloatSchedule(given) for name, given in schedules.items() if given is not None}
        vars(self).update({**dict(settings), **wrapped}, _stats_window_size=settings.stats_window_size)

    def _training_state(self) -> TrainingState:
        raise NotImplementedError

    def rebuild_optimizer(self) -> None:
        raise NotImplementedError

    def own_settings(self) -> dict[str, Any]:
        """Return what the constructor of a subclass takes and DistributionalPPO does not, as the attributes have it.

        :raises SettingError: there is no attribute of that name
        """
        names = own_names(type(self))
        for name in names:
            if not hasattr(self, name):
                raise SettingError(
                    name,
                    f"{type(self).__name__}() takes {name!r} and keeps no attribute of that name, so it cannot be saved; "
                    f"set self.{name} in its constructor",
                )
        return {name: getattr(self, name) for name in names}


def own_names(algorithm: type[ConfiguredPPO]) -> list[str]:
    """Return the names that the constructors of an algorithm's class take and DistributionalPPO does not."""
    subclasses = [each for each in algorithm.__mro__ if issubclass(each, ConfiguredPPO) and each is not ConfiguredPPO]
    constructors = [vars(each)["__init__"] for each in subclasses if "__init__" in vars(each)]
    parameters = [each for constructor in constructors for each in inspect.signature(constructor).parameters.values()]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [each.name for each in parameters if each.kind in named]
    return [name for name in dict.fromkeys(names) if name not in (*NO_SETTINGS, *PPOSettings.model_fields)]


SMALLEST_IMAGE: Final = 36
"""Pixels that the three convolutions of Stable-Baselines3's NatureCNN need each way."""
SUPPORTED: Final = (
    "'MlpLstmPolicy' reads Box, Discrete, MultiDiscrete and MultiBinary, 'CnnLstmPolicy' images of at least "
    f"{SMALLEST_IMAGE} pixels each way (uint8, or any with policy_kwargs normalize_images=False), and "
    "'MultiInputLstmPolicy' one Dict of these; actions are a Box of floats with finite bounds, Discrete, MultiDiscrete "
    "or MultiBinary, of at most one dimension but Box; Discrete and MultiDiscrete count from 0, and nothing is empty"
)

_Table = Mapping[type[spaces.Space[Any]], Callable[[Any], bool]]


def _from_zero(space: Any) -> bool:
    return space.shape != (0,) and len(space.shape) <= 1 and not np.any(space.start)


def _has_numbers(space: Any) -> bool:
    return space.shape != () and 0 not in space.shape


OBSERVATIONS: Final[_Table] = {
    spaces.Box: _has_numbers,
    spaces.Discrete: _from_zero,
    spaces.MultiDiscrete: _from_zero,
    spaces.MultiBinary: _has_numbers,
}
ACTIONS: Final[_Table] = {
    spaces.Box: lambda space: space.dtype.kind == "f" and bool(space.low.size) and space.is_bounded(),
    spaces.Discrete: _from_zero,
    spaces.MultiDiscrete: _from_zero,
    spaces.MultiBinary: lambda space: isinstance(space.n, int) and space.n > 0,
}


def require_spaces(
    observation_space: Any,
    action_space: Any,
    policy_class: type[DistributionalRecurrentPolicy] | None = None,
    policy_kwargs: Mapping[str, Any] | None = None,
) -> None:
    """
    :param policy_class: None for any
    :raises SettingError: the policy, with these settings, does not take the spaces
    """
    parts = list(observation_space.values()) if isinstance(observation_space, spaces.Dict) else [observation_space]
    readable = bool(parts) and all(_is_in(OBSERVATIONS, part) for part in parts)
    if policy_class is not None and readable:
        readable = isinstance(observation_space, spaces.Dict) is policy_class.takes_dict
        readable = readable and _are_images_readable(parts, policy_class, policy_kwargs or {})
    for side, space, fits in (
        ("observations", observation_space, readable),
        ("actions", action_space, _is_in(ACTIONS, action_space)),
    ):
        if not fits:
            shown = " ".join(repr(space).split())[:120]
            raise SettingError("env", f"the {side} are {shown}, which the policy does not take: {SUPPORTED}")


def _is_in(table: _Table, space: object) -> bool:
    return any(isinstance(space, kind) and supports(space) for kind, supports in table.items())


def _are_images_readable(
    parts: list[Any], policy_class: type[DistributionalRecurrentPolicy], policy_kwargs: Mapping[str, Any]
) -> bool:
    """Return False where a convolution would read no image, or one that is too small."""
    extractor = policy_class.extractor_for(policy_kwargs)
    given = policy_kwargs.get("features_extractor_kwargs", {}).get("normalized_image", False)
    normalized = given or not policy_kwargs.get("normalize_images", True)
    images = [part for part in parts if is_image_space(part, normalized_image=normalized)]
    if not issubclass(extractor, NatureCNN | CombinedExtractor):
        return True
    large_enough = all(min(image.shape[1:]) >= SMALLEST_IMAGE for image in images)
    return large_enough and (bool(images) or issubclass(extractor, CombinedExtractor))


OUR_PACKAGES = ("rlcore.", "sb3_contrib.", "stable_baselines3.", "torch.")
"""Packages whose modules can be built on the meta device."""


def require_network_of(model: ConfiguredPPO, weights: object) -> None:
    """Compare the network that the model's settings ask for with saved weights, before it takes memory.

    :param weights: the saved part ``policy``
    :raises StateError: if names, shapes or numbers do not fit
    """
    if not isinstance(weights, dict):
        raise StateError("holds no policy")
    network = model.policy_kwargs
    widths = network.get("net_arch") or ()
    depths = [len(part) for part in (widths.values() if isinstance(widths, Mapping) else [widths])]
    layers = max([network.get("n_lstm_layers", 1), *depths])
    if layers > len(weights):
        raise StateError(f"policy_kwargs ask for {layers} layers, and the file has {len(weights)} tensors of weights")
    try:
        with torch.device("meta"), unusable("the network of policy_kwargs, n_quantiles and num_atoms"):
            expected = _policy(model, VALUE_DISTRIBUTIONS[model.value_distribution].from_settings(model, ReturnScale()))
    except StateError:
        classes = [model.policy_class, network.get("features_extractor_class"), network.get("activation_fn")]
        if all(each is None or each.__module__.startswith(OUR_PACKAGES) for each in classes):
            raise
        return  # a class of the user's own that needs real tensors: the weights are compared once it is built
    weight_checks.check_policy(weights, expected.state_dict())


def make_values(model: ConfiguredPPO) -> ValueDistribution:
    """Return how each critic describes returns."""
    return VALUE_DISTRIBUTIONS[model.value_distribution].from_settings(model, model.value_scale)


def make_policy(model: ConfiguredPPO) -> DistributionalRecurrentPolicy:
    """Build the network with its optimizer, on the model's device."""
    options = {
        "critic_lr_multiplier": model.critic_lr_multiplier,
        "optimizer_class": find_optimizer(model.optimizer_class),
        "optimizer_kwargs": dict(model.optimizer_kwargs),
    }
    return _policy(model, make_values(model), **options).to(model.device)


def _policy(model: ConfiguredPPO, values: ValueDistribution, **options: Any) -> DistributionalRecurrentPolicy:
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
