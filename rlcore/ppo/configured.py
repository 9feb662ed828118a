"""The constructor of DistributionalPPO, and its settings as attributes that never differ from what trains."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, get_type_hints

import torch
from pydantic import Field
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.type_aliases import GymEnv

from rlcore.errors import SettingError
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo.arguments import check_device, check_schedules, resolve_settings
from rlcore.ppo.buffer import TwinCriticBuffer
from rlcore.ppo.coefficients import EntropySchedule, KLPenalty
from rlcore.ppo.policy import DistributionalRecurrentPolicy, find_policy
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.settings import OwnSettings, PPOSettings, SharedSettings, declares_keywords
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
        types = get_type_hints(PPOSettings)
        settings = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[name])
            for name, field in PPOSettings.model_fields.items()
        ]
        signature = inspect.signature(constructor)
        first, own = list(signature.parameters.values())[:3], list(signature.parameters.values())[3:-1]
        constructor.__signature__ = signature.replace(parameters=[*first, *settings, *own])  # type: ignore[attr-defined]
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
        policy_class = find_policy(policy)
        settings = resolve_settings(given, policy_class.default_extractor)
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
