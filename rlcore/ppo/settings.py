"""One table of the settings of DistributionalPPO: type, range, meaning, and which may change while training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeVar, dataclass_transform, get_args, get_origin

import numpy as np
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
from torch import nn

from rlcore.errors import refused_value
from rlcore.errors import reject_unknown as reject_unknown
from rlcore.optim.settings import REMOVED_ESTIMATORS
from rlcore.ppo.optimizers import find_optimizer, optimizer_options

Schedule = Callable[[float], float]
_Class = TypeVar("_Class")


def plain(value: Any) -> Any:
    """NumPy scalars as Python values; other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def flag_value(value: object) -> object:
    """NumPy's bools as Python's; other values unchanged, since bool() would take any text for True."""
    return bool(value) if isinstance(value, np.bool_) else value


def _estimator(value: object) -> object:
    if isinstance(value, str) and value in REMOVED_ESTIMATORS:
        raise PydanticCustomError("removed", REMOVED_ESTIMATORS[value])
    return value


Positive = Annotated[float, BeforeValidator(plain), Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, BeforeValidator(plain), Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, BeforeValidator(plain), Field(allow_inf_nan=False)]
Fraction = Annotated[float, BeforeValidator(plain), Field(ge=0, le=1)]
Rate = Annotated[Positive, Field(le=1e6)]
Count = Annotated[int, BeforeValidator(plain), Field(ge=1)]
Natural = Annotated[int, BeforeValidator(plain), Field(ge=0)]
Flag = Annotated[bool, BeforeValidator(lambda value: flag_value(value))]  # looked up at each call
Seed = Annotated[int, BeforeValidator(plain), Field(ge=0, lt=2**32)]
Estimator = Annotated[Literal["mean", "spatial", "total", "element"], BeforeValidator(_estimator)]


class Table(BaseModel):
    """Settings of one level. Every value is checked when the table is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    @classmethod
    def checked(cls, given: Mapping[str, Any], where: str) -> Self:
        """Make the table of a level below the settings.

        :param where: the level, such as ``policy_kwargs``
        :raises SettingError: for the first name or value that cannot be used
        """
        reject_unknown(given, where, homes({}))
        try:
            return cls(**given)
        except ValidationError as error:
            raise refused_value(error, cls, given, where + "[{!r}]") from error


class LstmSettings(Table):
    """Settings in ``policy_kwargs['lstm_kwargs']``."""

    bias: Flag = True
    dropout: Fraction = 0.0


class NetArch(Table):
    """Hidden widths of the actor and of every critic head in ``policy_kwargs['net_arch']``.

    As in Stable-Baselines3, a part that a dict leaves out has no hidden layer. Without ``net_arch`` each part has two
    of 64, and none behind ``NatureCNN``.
    """

    pi: list[Count] = []
    vf: list[Count] = []


class PolicySettings(Table):
    """Settings in ``policy_kwargs``, with the names and meanings of sb3-contrib."""

    net_arch: list[Count] | NetArch | None = None
    activation_fn: type[nn.Module] = nn.Tanh
    ortho_init: Flag = True
    log_std_init: Finite = 0.0
    features_extractor_class: type[BaseFeaturesExtractor] = FlattenExtractor
    features_extractor_kwargs: dict[str, Any] = {}
    share_features_extractor: Flag = True
    normalize_images: Flag = True
    lstm_hidden_size: Count = 256
    n_lstm_layers: Count = 1
    shared_lstm: Flag = False
    enable_critic_lstm: Flag = True
    lstm_kwargs: LstmSettings = LstmSettings()


def live(meaning: str, part_of: str | None = None, *, shown: bool = False, **limits: Any) -> Any:
    """Declare a setting that may change while training.

    :param part_of: the setting that switches this one on, or the value distribution that reads it
    :param shown: the setting changes output alone, and never what is trained
    :param limits: limits in addition to those of the type, as ``pydantic.Field`` takes them
    """
    extra: Any = {"live": True, "part_of": part_of, "shown": shown}
    return Field(description=meaning, json_schema_extra=extra, **limits)


def fixed(
    meaning: str, why: str = "it is read when the model is built", *, part_of: str | None = None, **limits: Any
) -> Any:
    """Declare a setting that is fixed once the model is built.

    :param why: why it cannot change
    """
    extra: Any = {"live": False, "why": why, "part_of": part_of}
    return Field(description=meaning, json_schema_extra=extra, **limits)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
def declares_keywords(table: type[_Class]) -> type[_Class]:
    """Tell type checkers and editors that the annotations of a class are the keywords of its constructor."""
    return table


SCALER: Final = "variance_gradient_scaling"
NETWORK: Final = "it shapes the network"
ATOMS: Final = "the atoms of the learnt distributions would mean other returns"


@declares_keywords
class SharedSettings:
    """The settings that sb3-contrib's RecurrentPPO has too."""

    learning_rate: Annotated[
        Rate | Schedule | None, live("number or schedule; default 2e-3 with adaptive_upgd, else 3e-4")
    ] = None
    n_steps: Annotated[Count, fixed("steps of each environment per rollout", why="it shapes the rollout buffer")] = 128
    batch_size: Annotated[Count, live("samples of a minibatch")] = 128
    n_epochs: Annotated[Count, live("passes over each rollout", le=10**6)] = 10
    gamma: Annotated[Fraction, live("discount factor")] = 0.99
    gae_lambda: Annotated[Fraction, live("lambda of generalised advantage estimation")] = 0.95
    clip_range: Annotated[Positive | Schedule, live("clipping of the probability ratio")] = 0.2
    clip_range_vf: Annotated[
        Positive | Schedule | None, live("clipping of each critic's mean, in units of the return")
    ] = None
    normalize_advantage: Annotated[Flag, live("normalise the advantages of each minibatch")] = True
    ent_coef: Annotated[NonNegative | None, live("weight of the entropy bonus; default 0")] = None
    vf_coef: Annotated[NonNegative, live("weight of the value loss")] = 0.5
    max_grad_norm: Annotated[Positive, live("largest norm of the gradient, after its scaling")] = 0.5
    target_kl: Annotated[Positive | None, live("stop an update beyond 1.5 times this KL divergence")] = None
    tensorboard_log: Annotated[str | None, live("folder for TensorBoard", shown=True)] = None
    policy_kwargs: Annotated[dict[str, Any] | None, fixed("settings of the policy network", why=NETWORK)] = None
    verbose: Annotated[Natural, live("0 silent, 1 info, 2 debug", shown=True, le=2)] = 0
    seed: Annotated[Seed | None, fixed("seed of every generator")] = None


@declares_keywords
class OwnSettings:
    """The settings that RecurrentPPO lacks."""

    ent_coef_initial: Annotated[NonNegative | None, live("another name for ent_coef")] = None
    ent_coef_final: Annotated[NonNegative | None, live("where ent_coef ends, linear in progress")] = None
    ent_coef_min: Annotated[NonNegative, live("floor of the entropy coefficient, above its start too")] = 0.0
    ent_coef_boost: Annotated[Finite | None, live("largest factor on ent_coef while critics explain nothing", gt=1)] = (
        None
    )
    ent_coef_plateau_explained_variance: Annotated[
        Finite, live("an update is bad below this explained variance", "ent_coef_boost", le=1)
    ] = 0.0
    ent_coef_plateau_patience: Annotated[
        Count, live("bad updates that raise ent_coef, good ones that lower it", "ent_coef_boost")
    ] = 3
    kl_penalty_target: Annotated[Positive | None, live("KL divergence that a penalty in the loss aims at")] = None
    kl_penalty_coef: Annotated[Positive, live("first weight of the KL penalty", "kl_penalty_target")] = 0.2
    kl_penalty_min_coef: Annotated[Positive, live("least weight of the KL penalty", "kl_penalty_target")] = 1e-3
    kl_penalty_max_coef: Annotated[Positive, live("largest weight of the KL penalty", "kl_penalty_target")] = 100.0
    optimizer_class: Annotated[
        str | type[torch.optim.Optimizer],
        fixed(
            "adaptive_upgd, upgd, adam, adamw, sgd, rmsprop or a class",
            why="the moments of one optimizer are of no use to another",
        ),
    ] = "adaptive_upgd"
    optimizer_kwargs: Annotated[
        dict[str, Any] | None, live("settings of the optimizer; 'lr' becomes learning_rate")
    ] = None
    critic_lr_multiplier: Annotated[Positive, live("the critics' learning rate over the actor's")] = 1.0
    n_critics: Annotated[Count, fixed("2 for twin critics, 1 for a single one", why=NETWORK, le=2)] = 2
    value_distribution: Annotated[
        Literal["quantile", "categorical"], fixed("how a critic describes returns", why=NETWORK)
    ] = "quantile"
    n_quantiles: Annotated[Count, fixed("quantiles of each critic", why=NETWORK, part_of="quantile")] = 32
    huber_kappa: Annotated[NonNegative, live("where the Huber loss turns linear, in scaled returns", "quantile")] = 1.0
    num_atoms: Annotated[
        Count | None, fixed("atoms of each categorical critic; default 51", ge=2, why=ATOMS, part_of="categorical")
    ] = None
    v_min: Annotated[
        Finite | None,
        fixed("return at the first atom; needed with categorical values", why=ATOMS, part_of="categorical"),
    ] = None
    v_max: Annotated[
        Finite | None,
        fixed("return at the last atom; needed with categorical values", why=ATOMS, part_of="categorical"),
    ] = None
    return_scale: Annotated[
        Literal["auto", "zero_lag", "snapshot"] | None, fixed("scale of returns; auto: zero_lag, None with atoms")
    ] = "auto"
    return_scale_decay: Annotated[
        Fraction, fixed("decay of the return statistics, once a rollout", part_of="return_scale", lt=1)
    ] = 0.9
    return_scale_min_std: Annotated[
        Positive, fixed("floor of the standard deviation of the returns", part_of="return_scale")
    ] = 1e-4
    variance_gradient_scaling: Annotated[
        Flag,
        fixed(
            "scale gradients by their variance; no benefit was measured",
            why="the scaler's statistics would be lost; vgs_alpha=0 scales by 1 and keeps measuring",
        ),
    ] = False
    vgs_beta: Annotated[Fraction, live("decay of the scaler's statistics", SCALER, lt=1)] = 0.99
    vgs_alpha: Annotated[NonNegative, live("strength of the scaling", SCALER)] = 0.1
    vgs_eps: Annotated[Positive, live("added to the denominator of the normalised variance", SCALER)] = 1e-8
    vgs_warmup_steps: Annotated[Natural, live("optimizer steps before the scaling acts", SCALER)] = 100
    vgs_estimator: Annotated[Estimator, live("which variance is measured", SCALER)] = "mean"
    vgs_normalization: Annotated[
        Literal["squared_mean", "second_moment"], live("what the variance is divided by", SCALER)
    ] = "squared_mean"
    vgs_min_scaling_factor: Annotated[Fraction, live("floor of the factor", SCALER, gt=0)] = 0.1
    vgs_max_normalized_variance: Annotated[Positive, live("cap of the normalised variance", SCALER)] = 100.0
    stats_window_size: Annotated[Count, fixed("episodes that the logged means cover")] = 100


class PPOSettings(OwnSettings, SharedSettings, Table):
    """Every setting of DistributionalPPO next to ``policy``, ``env`` and ``device``, as a user gives it.

    The constructor's keywords, the model's attributes, the section ``algorithm`` of a configuration file and the
    hyperparameters that a population may explore come from here.

    ``DistributionalPPO(policy, env, **PPOSettings(...).model_dump())`` builds a model of these settings.

    :raises UnknownSettingError: for a name that is no setting
    :raises SettingError: for a value that cannot be used
    """

    def __init__(self, **given: Any) -> None:
        if not given.keys() <= type(self).model_fields.keys():
            reject_unknown(given, "DistributionalPPO", homes(given))
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise refused_value(error, type(self), given) from error


MARKS: Final[Mapping[str, Any]] = {name: field.json_schema_extra for name, field in PPOSettings.model_fields.items()}
"""By setting, what ``live`` or ``fixed`` declared next to its limits."""
LIVE: Final = frozenset(name for name, marks in MARKS.items() if marks["live"])
"""Settings that may change while training."""
SHOWN: Final = frozenset(name for name, marks in MARKS.items() if marks.get("shown"))
"""Settings that change output alone."""


def part_of(switch: str) -> frozenset[str]:
    """The settings that another one switches on."""
    return frozenset(name for name, marks in MARKS.items() if marks["part_of"] == switch)


def described() -> str:
    """The settings for ``help(DistributionalPPO)``: one line for each with default, choices and meaning."""
    lines = [
        f"    {name} = {field.default!r}{_choices(field.annotation)}: {field.description}"
        for name, field in PPOSettings.model_fields.items()
    ]
    return "\n".join(["    Settings:", "", *lines, ""])


def _choices(annotation: object) -> str:
    literals = [part for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal]
    return "".join(f" ({', '.join(map(repr, get_args(literal)))})" for literal in literals)


def homes(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names that belong to each level, so that an error can name the right level of a misplaced one."""
    optimizer_class = find_optimizer(given.get("optimizer_class", "adaptive_upgd"))
    return {
        "DistributionalPPO": list(PPOSettings.model_fields),
        "policy_kwargs": [*PolicySettings.model_fields, "optimizer_class", "optimizer_kwargs"],
        "policy_kwargs['lstm_kwargs']": list(LstmSettings.model_fields),
        "policy_kwargs['net_arch']": list(NetArch.model_fields),
        "optimizer_kwargs": list(optimizer_options(optimizer_class)),
    }


def idle_under(name: str, settings: Any) -> str | None:
    """The switch that is off in ``settings``, so that the setting ``name`` does nothing; None if there is none."""
    switch = MARKS.get(name, {}).get("part_of")
    value = getattr(settings, switch) if switch in PPOSettings.model_fields else True
    return str(switch) if value is None or value is False else None
