"""Which fields of a model file are plain values that a model of Stable-Baselines3 can take over, and which are not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rlverify.scan.model_fields import SERIALIZED

_Kind: TypeAlias = Literal["number", "integer", "truth"]

_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys(
        (
            "_current_progress_remaining",
            "cg_damping",
            "ent_coef",
            "exploration_final_eps",
            "exploration_fraction",
            "exploration_initial_eps",
            "exploration_rate",
            "gae_lambda",
            "gamma",
            "learning_rate",
            "line_search_shrinking_factor",
            "max_grad_norm",
            "target_entropy",
            "target_kl",
            "target_noise_clip",
            "target_policy_noise",
            "tau",
            "vf_coef",
        ),
        "number",
    ),
    **dict.fromkeys(
        (
            "_episode_num",
            "_n_calls",
            "_n_updates",
            "_num_timesteps_at_start",
            "_total_timesteps",
            "batch_size",
            "cg_max_steps",
            "gradient_steps",
            "learning_starts",
            "line_search_max_iter",
            "n_critic_updates",
            "n_epochs",
            "num_timesteps",
            "policy_delay",
            "sde_sample_freq",
            "seed",
            "sub_sampling_factor",
            "target_update_interval",
            "top_quantiles_to_drop_per_net",
        ),
        "integer",
    ),
    **dict.fromkeys(("normalize_advantage", "use_sde_at_warmup"), "truth"),
}
_NONE_ALLOWED: Final = frozenset({"max_grad_norm", "seed", "target_kl"})
_FIXED_WHEN_BUILT: Final = frozenset(
    {"buffer_size", "ent_coef", "n_quantiles", "n_steps", "optimize_memory_usage", "policy_kwargs", "use_sde"}
)
_TYPES: Final[Mapping[_Kind, tuple[type, ...]]] = {"number": (int, float), "integer": (int,), "truth": (bool,)}


class FieldValueError(ValueError):
    """A plain field has a value that no model can have."""


@dataclass(frozen=True)
class SkippedPart:
    """A field of the file that the model does not take over.

    :param reason: why, and what the model has instead
    """

    name: str
    reason: str


@dataclass(frozen=True)
class SortedFields:
    """The fields of a file.

    :param to_set: values that the model takes over
    :param skipped: all others
    """

    to_set: Mapping[str, object]
    skipped: tuple[SkippedPart, ...]


def sort_fields(fields: Mapping[str, object], present: Mapping[str, object]) -> SortedFields:
    """Separate what a model takes over from what it keeps.

    :param fields: of the file
    :param present: the attributes of the model
    :raises FieldValueError: for a value of the wrong type, or a setting that the model does not know
    """
    to_set: dict[str, object] = {}
    skipped: list[SkippedPart] = []
    for name, value in fields.items():
        reason = _why_skipped(name, value, present)
        if reason:
            skipped.append(SkippedPart(name, reason))
        else:
            _check(name, value, present)
            to_set[name] = value
    return SortedFields(to_set, tuple(skipped))


def _why_skipped(name: str, value: object, present: Mapping[str, object]) -> str:
    if isinstance(value, dict) and SERIALIZED in value:
        return "it is a pickle, which would have to be executed; the model keeps its own"
    if name in _FIXED_WHEN_BUILT and not (name == "ent_coef" and _is_number(value) and _is_number(present.get(name))):
        return _why_fixed(value, present.get(name))
    if name not in _KINDS:
        return "it is no setting or counter that training reads; the model keeps its own"
    return ""


def _why_fixed(value: object, own: object) -> str:
    same = "has the same" if value == own else f"has {own!r:.80}, the file {value!r:.80}"
    return f"it is fixed when a model is built; the model {same}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(name: str, value: object, present: Mapping[str, object]) -> None:
    if name not in present:
        raise FieldValueError(f"its field {name} is unknown to the model; the file is of another algorithm")
    if value is None and name in _NONE_ALLOWED:
        return
    kind = _KINDS[name]
    is_truth = isinstance(value, bool)
    if not isinstance(value, _TYPES[kind]) or is_truth != (kind == "truth"):
        raise FieldValueError(f"its field {name} is {value!r:.80}, which is no {kind}")
    if isinstance(value, float) and not math.isfinite(value):
        raise FieldValueError(f"its field {name} is {value!r}, which is not finite")
