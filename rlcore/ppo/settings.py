"""One table of the settings of DistributionalPPO: type, range, meaning, and which may change while training."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, dataclass_transform, get_args

import numpy as np
import torch
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn
from typing_extensions import TypedDict

from rlcore.checkpoint.codec import register_class
from rlcore.errors import SettingError
from rlcore.errors import reject_unknown as reject_unknown
from rlcore.optim.gradient_variance import Estimator, Normalization
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from rlcore.state.tree import harmful_option
from rlcore.types import Count, Finite, Fraction, Natural, NonNegative, Positive, Seed, Table, plain

_Class = TypeVar("_Class")

TOP: Final = "DistributionalPPO"
LSTM_LEVEL: Final = "policy_kwargs['lstm_kwargs']"
ARCH_LEVEL: Final = "policy_kwargs['net_arch']"


def flag_value(value: object) -> object:
    """Return NumPy's bools as Python's, and other values unchanged; bool() would take any text for True."""
    return bool(value) if isinstance(value, np.bool_) else value


def check_schedule(setting: str, schedule: Callable[[float], Any], remaining: float) -> float:
    """Return the value of a schedule at ``remaining`` progress, or raise SettingError if it cannot be a rate."""
    value = plain(schedule(remaining))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        found = f"{setting} gives {value!r} at remaining progress {remaining:g}"
        raise SettingError(setting, f"{found}; a schedule must give a finite number of at least 0")
    return float(value)


def _checked_at_its_start(schedule: Callable[[float], float], info: ValidationInfo) -> Callable[[float], float]:
    check_schedule(str(info.field_name), schedule, 1.0)
    return schedule


Schedule = Annotated[Callable[[float], float], AfterValidator(_checked_at_its_start)]
Rate = Annotated[Positive, Field(le=1e6)]
Flag = Annotated[bool, BeforeValidator(lambda value: flag_value(value))]  # looked up at each call
Distribution = Literal["quantile", "categorical"]
Scale = Literal["auto", "zero_lag", "snapshot"]


BOOST: Final = "ent_coef_boost"
BUILT: Final = "it is read when the model is built"
SCALER: Final = "variance_gradient_scaling"
PENALTY: Final = "kl_penalty_target"
RETURNS: Final = "return_scale"
NETWORK: Final = "it shapes the network"
ATOMS: Final = "the atoms of the learnt distributions would mean other returns"
MOMENTS: Final = "the moments of one optimizer are of no use to another"

if TYPE_CHECKING:
    PolicyKwargs = dict[str, Any]
else:

    class PolicyKwargs(TypedDict, total=False):
        """Settings of the network, with names, meanings and defaults of sb3-contrib."""

        __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # unknown names are refused with the right one

        net_arch: list[Count] | dict[Literal["pi", "vf"], list[Count]] | None
        activation_fn: type[nn.Module]
        ortho_init: Flag
        log_std_init: Finite
        features_extractor_class: type[BaseFeaturesExtractor]
        features_extractor_kwargs: dict[str, Any]
        share_features_extractor: Flag
        normalize_images: Flag
        lstm_hidden_size: Count
        n_lstm_layers: Count
        shared_lstm: Flag
        enable_critic_lstm: Flag
        lstm_kwargs: dict[Literal["bias", "dropout"], Flag | Fraction]
        optimizer_class: Any
        optimizer_kwargs: Any


def live(meaning: str, part_of: str | None = None, *, default: Any, shown: bool = False, **limits: Any) -> Any:
    """Declare a setting that may change while training.

    :param part_of: the setting that switches this one on, or the value distribution that reads it
    :param shown: the setting changes output alone
    :param limits: limits as ``pydantic.Field`` takes them
    """
    extra: Any = {"part_of": part_of, "shown": shown, "fixed": None}
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


def fixed(meaning: str, why: str = BUILT, part_of: str | None = None, *, default: Any, **limits: Any) -> Any:
    """Declare a setting that is fixed once the model is built, and why."""
    extra: Any = {"part_of": part_of, "shown": False, "fixed": why}
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, live, fixed))
def declares_keywords(table: type[_Class]) -> type[_Class]:
    """Tell type checkers and editors that the annotations of a class are the keywords of its constructor."""
    return table


@declares_keywords
class SharedSettings:
    """The settings that sb3-contrib's RecurrentPPO has too."""

    learning_rate: Rate | Schedule | None = live("number or schedule; 2e-3 with adaptive_upgd, else 3e-4", default=None)
    n_steps: Count = fixed("steps of each environment per rollout", "it shapes the rollout buffer", default=128)
    batch_size: Count = live("samples of a minibatch", default=128)
    n_epochs: Count = live("passes over each rollout", default=10, le=10**6)
    gamma: Fraction = live("discount factor", default=0.99)
    gae_lambda: Fraction = live("lambda of generalised advantage estimation", default=0.95)
    clip_range: Positive | Schedule = live("clipping of the probability ratio", default=0.2)
    clip_range_vf: Positive | Schedule | None = live("clipping of each critic's mean, in returns", default=None)
    normalize_advantage: Flag = live("normalise the advantages of each minibatch", default=True)
    ent_coef: NonNegative | None = live("weight of the entropy bonus; default 0", default=None)
    vf_coef: NonNegative = live("weight of the value loss", default=0.5)
    max_grad_norm: Positive = live("largest norm of the gradient, after its scaling", default=0.5)
    target_kl: Positive | None = live("stop an update beyond 1.5 times this KL divergence", default=None)
    tensorboard_log: str | None = live("folder for TensorBoard", default=None, shown=True)
    policy_kwargs: PolicyKwargs | None = fixed("settings of the policy network", NETWORK, default=None)
    verbose: Natural = live("0 silent, 1 info, 2 debug", default=0, shown=True, le=2)
    seed: Seed | None = fixed("seed of every generator", default=None)


@declares_keywords
class OwnSettings:
    """The settings that RecurrentPPO lacks."""

    ent_coef_initial: NonNegative | None = live("another name for ent_coef", default=None)
    ent_coef_final: NonNegative | None = live("where ent_coef ends, linear in progress", default=None)
    ent_coef_min: NonNegative = live("floor of the entropy coefficient, above its start too", default=0.0)
    ent_coef_boost: Finite | None = live("largest factor on ent_coef while critics explain nothing", default=None, gt=1)
    ent_coef_plateau_explained_variance: Finite = live("an update below it is bad", BOOST, default=0.0, le=1)
    ent_coef_plateau_patience: Count = live("bad updates that raise ent_coef, good that lower it", BOOST, default=3)
    kl_penalty_target: Positive | None = live("KL divergence that a penalty in the loss aims at", default=None)
    kl_penalty_coef: Positive = live("first weight of the KL penalty", PENALTY, default=0.2)
    kl_penalty_min_coef: Positive = live("least weight of the KL penalty", PENALTY, default=1e-3)
    kl_penalty_max_coef: Positive = live("largest weight of the KL penalty", PENALTY, default=100.0)
    optimizer_class: str | type[torch.optim.Optimizer] = fixed(
        "adaptive_upgd, upgd, adam, adamw, sgd, rmsprop or a class", MOMENTS, default="adaptive_upgd"
    )
    optimizer_kwargs: dict[str, Any] | None = live("settings of the optimizer; 'lr' sets learning_rate", default=None)
    critic_lr_multiplier: Positive = live("the critics' learning rate over the actor's", default=1.0)
    n_critics: Count = fixed("2 for twin critics, 1 for a single one", NETWORK, default=2, le=2)
    value_distribution: Distribution = fixed("how a critic describes returns", NETWORK, default="quantile")
    n_quantiles: Count = fixed("quantiles of each critic", NETWORK, "quantile", default=32)
    huber_kappa: NonNegative = live("where the Huber loss turns linear, in scaled returns", "quantile", default=1.0)
    num_atoms: Count | None = fixed("atoms of each critic; default 51", ATOMS, "categorical", default=None, ge=2)
    v_min: Finite | None = fixed("return at the first atom; needed with atoms", ATOMS, "categorical", default=None)
    v_max: Finite | None = fixed("return at the last atom; needed with atoms", ATOMS, "categorical", default=None)
    return_scale: Scale | None = fixed("scale of returns; auto: zero_lag; always None with atoms", default="auto")
    return_scale_decay: Fraction = fixed("decay of the statistics, once a rollout", part_of=RETURNS, default=0.9, lt=1)
    return_scale_min_std: Positive = fixed("floor of the returns' deviation", part_of=RETURNS, default=1e-4)
    variance_gradient_scaling: Flag = fixed(
        "scale gradients by their variance; no benefit was measured",
        "the scaler's statistics would be lost; vgs_alpha=0 scales by 1 and keeps measuring",
        default=False,
    )
    vgs_beta: Fraction = live("decay of the scaler's statistics", SCALER, default=0.99, lt=1)
    vgs_alpha: NonNegative = live("strength of the scaling", SCALER, default=0.1)
    vgs_eps: Positive = live("added to the denominator of the normalised variance", SCALER, default=1e-8)
    vgs_warmup_steps: Natural = live("optimizer steps before the scaling acts", SCALER, default=100)
    vgs_estimator: Estimator = live("which variance is measured", SCALER, default="mean")
    vgs_normalization: Normalization = live("what the variance is divided by", SCALER, default="squared_mean")
    vgs_min_scaling_factor: Fraction = live("floor of the factor", SCALER, default=0.1, gt=0)
    vgs_max_normalized_variance: Positive = live("cap of the normalised variance", SCALER, default=100.0)
    stats_window_size: Count = fixed("episodes that the logged means cover", default=100)


class PPOSettings(OwnSettings, SharedSettings, Table):
    """Every setting of DistributionalPPO next to ``policy``, ``env`` and ``device``, as a user gives it.

    The constructor's keywords, the model's attributes, the section ``algorithm`` of a configuration file and the
    hyperparameters of a population come from here. ``DistributionalPPO(policy, env, **PPOSettings(...).model_dump())``
    builds a model.

    :raises UnknownSettingError: for a name that is no setting of its level
    :raises SettingError: for a value that cannot be used
    """

    def __init__(self, **given: Any) -> None:
        levels: dict[str, Any] = {TOP: given}
        network = given.get("policy_kwargs")
        if isinstance(network, Mapping):
            nested = {LSTM_LEVEL: network.get("lstm_kwargs"), ARCH_LEVEL: network.get("net_arch")}
            levels |= {"policy_kwargs": dict(network), **nested}
        for level, names in levels.items():
            if isinstance(names, Mapping) and not names.keys() <= LEVELS[level].keys():
                reject_unknown(names, level, homes(given))
        super().__init__(**given)


MARKS: Final[Mapping[str, Any]] = {name: field.json_schema_extra for name, field in PPOSettings.model_fields.items()}
"""By setting, what ``live`` or ``fixed`` declared next to its limits."""
LIVE: Final = frozenset(name for name, marks in MARKS.items() if not marks["fixed"])
"""Settings that may change while training."""
SHOWN: Final = frozenset(name for name, marks in MARKS.items() if marks["shown"])
"""Settings that change output alone."""


def part_of(switch: str) -> frozenset[str]:
    """Return the settings that another one switches on."""
    return frozenset(name for name, marks in MARKS.items() if marks["part_of"] == switch)


def described() -> str:
    """Return the settings for ``help(DistributionalPPO)``: one line for each with default and meaning."""
    fields = PPOSettings.model_fields.items()
    lines = [f"    {name} = {field.default!r}: {field.description}" for name, field in fields]
    return "\n".join(["    Settings:", "", *lines, ""])


LEVELS: Final[Mapping[str, Mapping[str, Any]]] = {
    TOP: PPOSettings.model_fields,
    "policy_kwargs": PolicyKwargs.__annotations__,
    LSTM_LEVEL: dict.fromkeys(("bias", "dropout")),
    ARCH_LEVEL: dict.fromkeys(("pi", "vf")),
}
"""The names that belong to each level."""


def homes(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of each level and of the optimizer, so that an error can say where a misplaced one belongs."""
    optimizer_class = find_optimizer(given.get("optimizer_class", "adaptive_upgd"))
    levels = {level: list(names) for level, names in LEVELS.items()}
    return {**levels, "optimizer_kwargs": list(optimizer_options(optimizer_class))}


def idle_under(name: str, settings: Any) -> str | None:
    """Return the setting under which ``name`` does nothing in ``settings``, or None if it has an effect."""
    switch = MARKS.get(name, {}).get("part_of")
    if switch in get_args(Distribution):
        return None if settings.value_distribution == switch else "value_distribution"
    return switch if switch is not None and not getattr(settings, switch) else None


def require_effect(name: str, value: object, settings: Any) -> None:
    """Raise SettingError if the setting ``name`` does nothing under ``settings``."""
    switch = idle_under(name, settings)
    if switch is not None:
        off = f"{switch}={getattr(settings, switch)!r}"
        raise SettingError(name, f"{name}={value!r} would do nothing, as {off}; change {switch}, or leave {name} out")


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adaptive_upgd": AdaptiveUPGD,
    "upgd": UPGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}

for _optimizer in (UPGD, AdaptiveUPGD):
    register_class(f"rlcore.{_optimizer.__name__}", _optimizer)


def find_optimizer(optimizer_class: object) -> type[torch.optim.Optimizer]:
    """Return the optimizer class of a name in ``OPTIMIZERS``, or the class that was given, or raise SettingError."""
    found = OPTIMIZERS.get(optimizer_class) if isinstance(optimizer_class, str) else optimizer_class
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer):
        return found
    known = f"one of {', '.join(sorted(OPTIMIZERS))} or a torch.optim.Optimizer class"
    raise SettingError("optimizer_class", f"optimizer_class={optimizer_class!r} is no optimizer; give {known}")


def default_learning_rate(optimizer_class: type[torch.optim.Optimizer]) -> float:
    """Return the rate where none is given; with AdaptiveUPGD the best of ``benchmarks/learning.py``."""
    return 2e-3 if issubclass(optimizer_class, AdaptiveUPGD) else 3e-4


def optimizer_options(optimizer_class: type[torch.optim.Optimizer]) -> dict[str, Any]:
    """Return the settings that an optimizer takes, with their defaults."""
    parameters = inspect.signature(optimizer_class).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "params" and p.kind is not p.VAR_KEYWORD}


def make_optimizer(
    optimizer_class: type[torch.optim.Optimizer], groups: list[dict[str, Any]], options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """Build an optimizer over the groups that hold parameters."""
    filled = [group for group in groups if group["params"]]
    return optimizer_class(filled, lr=filled[0]["lr"], **options)  # type: ignore[call-arg]


def group_options(optimizer_class: type[torch.optim.Optimizer], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an optimizer's groups, but ``lr`` and ``seed``; SettingError if it cannot be built."""
    known, types = optimizer_options(optimizer_class), inspect.signature(optimizer_class).parameters
    reject_unknown(given, "optimizer_kwargs", {**homes({}), "optimizer_kwargs": list(known)})
    if harmful := harmful_option(given):
        where = f"optimizer_kwargs[{harmful!r}]"
        raise SettingError(where, f"{where}={given[harmful]!r} would ascend the loss or give NaN; drop it")
    seed = {"seed": 0} if "seed" in known else {}  # without it, one would be drawn from the global generator
    options: dict[str, Any] = {name: value for name, value in {**seed, **given}.items() if name != "lr"}
    groups = [
        {"params": [nn.Parameter(torch.zeros(1))], "lr": default_learning_rate(optimizer_class)} for _ in range(2)
    ]
    try:
        for name, value in options.items():
            if "bool" in str(types[name].annotation) and not isinstance(flag_value(value), bool | None):
                raise TypeError(f"{name}={value!r} is neither True nor False")
        group = make_optimizer(optimizer_class, groups, options).param_groups[0]
    except (TypeError, ValueError, RuntimeError) as error:
        reason = f"optimizer_kwargs={dict(given)!r} do not fit {optimizer_class.__name__}: {error}"
        where = f"optimizer_kwargs[{error.setting!r}]" if isinstance(error, SettingError) else "optimizer_kwargs"
        raise SettingError(where, reason) from error
    return {name: value for name, value in group.items() if name not in ("params", "lr", "seed")}


def resolve_settings(given: Mapping[str, Any], asked: Collection[str] | None = None) -> PPOSettings:
    """Check every level, write each setting in one place, and fill in the defaults.

    ``optimizer_class`` and ``optimizer_kwargs`` may be in ``policy_kwargs``, as in Stable-Baselines3, and ``lr`` in
    ``optimizer_kwargs``, where they take precedence; ``ent_coef_initial`` becomes ``ent_coef``.

    :param asked: settings that must have an effect where they differ from their default; None for all
    :raises UnknownSettingError: for a misspelt or misplaced setting at any level, with the right one
    :raises SettingError: for a value that cannot be used, and for a setting that would do nothing
    """
    settings = PPOSettings(**given)
    network: dict[str, Any] = dict(settings.policy_kwargs or {})
    for name in ("optimizer_class", "optimizer_kwargs"):
        if name in network:
            given = {**given, name: network.pop(name), "policy_kwargs": network}
    settings = PPOSettings(**given)
    group_options(find_optimizer(settings.optimizer_class), settings.optimizer_kwargs or {})
    resolved = resolve_together(settings)
    for name in sorted(MARKS if asked is None else asked):
        if getattr(settings, name) != PPOSettings.model_fields[name].default:
            require_effect(name, getattr(settings, name), resolved)
    return resolved


def resolve_together(settings: PPOSettings) -> PPOSettings:
    """Fill in what follows from several settings; SettingError if a rate or a range of returns cannot be used."""
    options, rate = dict(settings.optimizer_kwargs or {}), settings.learning_rate
    if rate is None or "lr" in options:
        rate = resolve_learning_rate(rate, options, default_learning_rate(find_optimizer(settings.optimizer_class)))
    options.pop("lr", None)
    start = settings.ent_coef if settings.ent_coef_initial is None else settings.ent_coef_initial
    scale, atoms = settings.return_scale, settings.num_atoms
    if settings.value_distribution == "categorical":
        scale, atoms = None, 51 if atoms is None else atoms
        low, high = settings.v_min, settings.v_max
        if low is None or high is None or low >= high:
            reason = f"v_min={low!r} and v_max={high!r} make no range; give the least and the largest possible return"
            raise SettingError("v_min", f"value_distribution='categorical': {reason}")
    kwargs = {"policy_kwargs": dict(settings.policy_kwargs or {}), "optimizer_kwargs": options, "learning_rate": rate}
    entropy = {"ent_coef": 0.0 if start is None else start, "ent_coef_initial": None}
    values = {"num_atoms": atoms, "return_scale": "zero_lag" if scale == "auto" else scale}
    return settings.model_copy(update={**kwargs, **entropy, **values})


def resolve_learning_rate(
    learning_rate: float | Schedule | None, optimizer_kwargs: Mapping[str, Any], default: float
) -> float | Schedule:
    """Return the rate that trains: ``optimizer_kwargs['lr']``, else ``learning_rate``, else ``default``."""
    lr = PPOSettings(learning_rate=optimizer_kwargs.get("lr")).learning_rate
    given = learning_rate if lr is None else lr
    return default if given is None else given


def whole_number(setting: str, value: object) -> int:
    """Return the value as an int, or raise SettingError; 1e6 and NumPy's integers count as whole."""
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number // 1 or number < 0:
        raise SettingError(setting, f"{setting}={value!r} is no whole number of at least 0; give one")
    return int(number)
