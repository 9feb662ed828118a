"""The settings of DistributionalPPO: one table, checked before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
from torch import nn

from rlcore.errors import SettingError
from rlcore.optim.settings import REMOVED_ESTIMATORS
from rlcore.ppo.arguments import Schedule, plain
from rlcore.ppo.arguments import reject_unknown as reject_unknown
from rlcore.ppo.optimizers import find_optimizer, optimizer_options


def flag_value(value: object) -> object:
    """NumPy's bools as Python's; anything else as it is, to be refused: bool() would take any text for True."""
    return bool(value) if isinstance(value, np.bool_) else value


def _estimator(value: object) -> object:
    if isinstance(value, str) and value in REMOVED_ESTIMATORS:
        raise PydanticCustomError("removed", REMOVED_ESTIMATORS[value])
    return value


Positive = Annotated[float, BeforeValidator(plain), Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, BeforeValidator(plain), Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, BeforeValidator(plain), Field(allow_inf_nan=False)]
Fraction = Annotated[float, BeforeValidator(plain), Field(ge=0, le=1)]
Count = Annotated[int, BeforeValidator(plain), Field(ge=1)]
Natural = Annotated[int, BeforeValidator(plain), Field(ge=0)]
Flag = Annotated[bool, BeforeValidator(lambda value: flag_value(value))]  # looked up at each call
Seed = Annotated[int, BeforeValidator(plain), Field(ge=0, lt=2**32)]


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class LstmSettings(Table):
    """What ``policy_kwargs['lstm_kwargs']`` takes."""

    bias: Flag = True
    dropout: Fraction = 0.0


class NetArch(Table):
    """What ``policy_kwargs['net_arch']`` takes: hidden widths of the actor and of every critic head.

    As in Stable-Baselines3, what a dict leaves out has no hidden layer; without ``net_arch`` each has two of 64, and
    none behind ``NatureCNN``.
    """

    pi: list[Count] = []
    vf: list[Count] = []


class PolicySettings(Table):
    """What ``policy_kwargs`` takes; the names and meanings are sb3-contrib's."""

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


class PPOSettings(Table):
    """Every setting of DistributionalPPO next to ``policy``, ``env`` and ``device``, as a user gives it.

    ``DistributionalPPO(policy, env, **PPOSettings(...).model_dump())`` builds a model of these settings.

    :raises UnknownSettingError: for a name that is no setting
    :raises SettingError: for a value that cannot be used
    """

    learning_rate: Annotated[Positive, Field(le=1e6)] | Schedule | None = Field(
        None, description="number or schedule of the remaining progress; default 2e-3 with adaptive_upgd, else 3e-4"
    )
    n_steps: Count = Field(128, description="steps of each environment per rollout")
    batch_size: Count = Field(128, description="samples of a minibatch")
    n_epochs: Count = Field(10, le=10**6, description="passes over each rollout")
    gamma: Fraction = Field(0.99, description="discount factor")
    gae_lambda: Fraction = Field(0.95, description="lambda of generalised advantage estimation")
    clip_range: Positive | Schedule = Field(0.2, description="clipping of the probability ratio")
    clip_range_vf: Positive | Schedule | None = Field(
        None, description="clipping of each critic's mean, in units of the return; None for none"
    )
    normalize_advantage: Flag = Field(True, description="normalise the advantages of each minibatch")
    ent_coef: NonNegative | None = Field(
        None, description="weight of the entropy bonus, constant unless ent_coef_final is given; default 0"
    )
    ent_coef_initial: NonNegative | None = Field(None, description="another name for ent_coef, where it is a schedule")
    ent_coef_final: NonNegative | None = Field(
        None, description="where ent_coef ends, linear in progress; None for a constant"
    )
    ent_coef_min: NonNegative = Field(0.0, description="floor of the entropy coefficient, above its start too")
    ent_coef_boost: Finite | None = Field(
        None,
        gt=1,
        description="largest factor on the entropy coefficient while the critics explain nothing; None for none",
    )
    ent_coef_plateau_explained_variance: Finite = Field(
        0.0, le=1, description="explained variance of a rollout below which its update counts as bad"
    )
    ent_coef_plateau_patience: Count = Field(
        3, description="bad updates in a row that raise the entropy coefficient, and good ones that lower it again"
    )
    vf_coef: NonNegative = Field(0.5, description="weight of the value loss")
    max_grad_norm: Positive = Field(0.5, description="largest norm of the gradient, after its scaling")
    target_kl: Positive | None = Field(None, description="stop an update beyond 1.5 times this KL divergence")
    kl_penalty_target: Positive | None = Field(
        None, description="KL divergence of an update that a penalty in the loss aims at; None for no penalty"
    )
    kl_penalty_coef: Positive = Field(0.2, description="weight that the KL penalty starts from")
    kl_penalty_min_coef: Positive = Field(1e-3, description="least weight of the KL penalty")
    kl_penalty_max_coef: Positive = Field(100.0, description="largest weight of the KL penalty")
    optimizer_class: str | type[torch.optim.Optimizer] = Field(
        "adaptive_upgd", description="adaptive_upgd, upgd, adam, adamw, sgd, rmsprop or a class"
    )
    optimizer_kwargs: dict[str, Any] | None = Field(
        None, description="settings of the optimizer; 'lr' becomes learning_rate"
    )
    critic_lr_multiplier: Positive = Field(1.0, description="the critics' learning rate over the actor's")
    n_critics: Count = Field(2, le=2, description="2 for twin critics, 1 for a single one")
    value_distribution: Literal["quantile", "categorical"] = Field(
        "quantile", description="how a critic describes returns"
    )
    n_quantiles: Count = Field(32, description="quantiles of each critic")
    huber_kappa: NonNegative = Field(
        1.0, description="where the quantile Huber loss turns linear, in units of the scaled return"
    )
    num_atoms: Annotated[Count, Field(ge=2)] | None = Field(
        None, description="atoms of each categorical critic; default 51"
    )
    v_min: Finite | None = Field(None, description="return at the first atom; needed with categorical values")
    v_max: Finite | None = Field(None, description="return at the last atom; needed with categorical values")
    return_scale: Literal["auto", "zero_lag", "snapshot"] | None = Field(
        "auto",
        description="how returns are scaled for the value loss; None for not; auto: zero_lag, None with atoms",
    )
    return_scale_decay: Fraction = Field(0.9, lt=1, description="decay of the return statistics, once a rollout")
    return_scale_min_std: Positive = Field(1e-4, description="floor of the standard deviation of the returns")
    variance_gradient_scaling: Flag = Field(
        False, description="scale gradients by their variance over time; no benefit was measured"
    )
    vgs_beta: Fraction = Field(0.99, lt=1, description="decay of the scaler's statistics")
    vgs_alpha: NonNegative = Field(0.1, description="strength of the scaling")
    vgs_eps: Positive = Field(1e-8, description="added to the denominator of the normalised variance")
    vgs_warmup_steps: Natural = Field(100, description="optimizer steps before the scaling acts")
    vgs_estimator: Annotated[Literal["mean", "spatial", "total", "element"], BeforeValidator(_estimator)] = Field(
        "mean", description="which variance is measured"
    )
    vgs_normalization: Literal["squared_mean", "second_moment"] = Field(
        "squared_mean", description="what the variance is divided by"
    )
    vgs_min_scaling_factor: Fraction = Field(0.1, gt=0, description="floor of the factor")
    vgs_max_normalized_variance: Positive = Field(100.0, description="cap of the normalised variance")
    stats_window_size: Count = Field(100, description="episodes that the logged means cover")
    tensorboard_log: str | None = Field(None, description="folder for TensorBoard")
    policy_kwargs: dict[str, Any] | None = Field(None, description="settings of the policy network")
    verbose: Annotated[Natural, Field(le=2)] = Field(0, description="0 silent, 1 info, 2 debug")
    seed: Seed | None = Field(None, description="seed of every generator")

    def __init__(self, **given: Any) -> None:
        reject_unknown(given, "DistributionalPPO", homes(given))
        with clear_errors(type(self), given, "DistributionalPPO"):
            super().__init__(**given)


def described() -> str:
    """The settings for ``help(DistributionalPPO)``: a line each with its default, its choices and what it is."""
    lines = [
        f"    {name} = {field.default!r}{_choices(field.annotation)}: {field.description}"
        for name, field in PPOSettings.model_fields.items()
    ]
    return "\n".join(["    Settings:", "", *lines, ""])


def _choices(annotation: object) -> str:
    """What a setting of given words can be, in brackets; empty for any other."""
    literals = [part for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal]
    return "".join(f" ({', '.join(map(repr, get_args(literal)))})" for literal in literals)


@contextmanager
def clear_errors(table: type[Table], given: Mapping[str, Any], where: str) -> Iterator[None]:
    """Turn pydantic's report into one sentence about the first thing that is wrong."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join(str(part) for part in first["loc"][:1])
        setting = path if where == "DistributionalPPO" else f"{where}[{path!r}]"
        wanted = table.model_fields[path].description
        meaning = f" ({wanted})" if wanted else ""
        raise SettingError(
            setting, f"{setting}={given[path]!r} cannot be used{meaning}: {first['msg'][0].lower()}{first['msg'][1:]}"
        ) from error


def homes(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Where every known setting belongs, for telling a user of a misplaced one."""
    optimizer_class = find_optimizer(given.get("optimizer_class", "adaptive_upgd"))
    return {
        "DistributionalPPO": list(PPOSettings.model_fields),
        "policy_kwargs": [*PolicySettings.model_fields, "optimizer_class", "optimizer_kwargs"],
        "policy_kwargs['lstm_kwargs']": list(LstmSettings.model_fields),
        "policy_kwargs['net_arch']": list(NetArch.model_fields),
        "optimizer_kwargs": list(optimizer_options(optimizer_class)),
    }
