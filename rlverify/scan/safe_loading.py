"""Restores a model of Stable-Baselines3 from its zip file without unpickling anything.

This module imports torch and stable-baselines3 when it is called; the other modules of the scan do without them.
"""

from __future__ import annotations

import copy
import io
import math
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from rlverify.pickles.bounded_reading import DAMAGE, NotScannedError
from rlverify.pickles.pickle_imports import content_of
from rlverify.records.attempts import Crash, attempt
from rlverify.records.errors import ModelFileError
from rlverify.scan.unpacking import MODEL_FIELDS, SERIALIZED, parsed_fields

if TYPE_CHECKING:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm

ModelFile: TypeAlias = "str | PathLike[str] | BinaryIO"

_TENSORS: Final = "pytorch_variables"  # the member with single tensors
_EXPLORATION: Final = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
_IN_WEIGHTS: Final = ("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter")
_NOT_NEGATIVE: Final = re.compile(r".*: (step|exp_avg_sq|max_exp_avg_sq|square_avg)")
_RATE: Final = re.compile(r".*: (lr|initial_lr)")
_MAY_BE_NONE: Final = ("max_grad_norm", "seed", "target_kl")

_RANGES: Final[Mapping[str, tuple[type, float, float]]] = {
    name: bounds
    for bounds, names in {
        (float, 0.0, 1.0): "gamma gae_lambda tau exploration_rate line_search_shrinking_factor "
        + " ".join(_EXPLORATION),
        (float, 0.0, math.inf): """
            learning_rate ent_coef vf_coef max_grad_norm target_kl cg_damping target_noise_clip target_policy_noise
        """,
        (float, -math.inf, math.inf): "target_entropy _current_progress_remaining",
        (int, 1, math.inf): """
            batch_size n_epochs policy_delay cg_max_steps line_search_max_iter n_critic_updates sub_sampling_factor
            target_update_interval
        """,
        (int, 0, math.inf): """
            num_timesteps learning_starts seed top_quantiles_to_drop_per_net _episode_num _n_calls _n_updates
            _num_timesteps_at_start _total_timesteps
        """,
        (int, -1, math.inf): "gradient_steps sde_sample_freq",
        (bool, 0, 1): "normalize_advantage use_sde_at_warmup",
    }.items()
    for name in names.split()
}
"""Type and range of each setting and counter that a model takes over."""


class MisfitError(Exception):
    """Part of a file does not fit the model."""


@dataclass(frozen=True)
class SkippedPart:
    """A field of the file that the model does not take over."""

    name: str
    reason: str


@dataclass(frozen=True)
class RestoredParameters:
    """What `load_parameters_safely` did.

    :param restored: names of weights, optimizer states, tensors and fields that the model took over
    :param skipped: fields of the file that it did not take over, and why
    """

    restored: tuple[str, ...]
    skipped: tuple[SkippedPart, ...]


def load_parameters_safely(file: ModelFile, model: BaseAlgorithm) -> RestoredParameters:
    """Restore weights, optimizer states and plain fields of a model file of Stable-Baselines3, and execute nothing.

    The model keeps what the file has only as pickles: spaces, classes, schedules and buffers. Build it with the same
    settings as the saved one. All of the file is checked before anything changes. Memory is bounded by the size of the
    file.

    :param file: what ``model.save`` wrote; as in Stable-Baselines3, ``.zip`` may be left out
    :param model: a model of the same algorithm and shape
    :return: what was restored, and what was skipped and why
    :raises ModelFileError: if the file cannot be read or does not fit the model, which is unchanged then
    """
    try:
        fields, states = _read(file)
        skipped = {key: reason for key, value in fields.items() if (reason := _why_skipped(key, value, model))}
        kept = {key: _fitted_field(key, fields[key], model) for key in fields.keys() - skipped}
        fitted, tensors = _fitted(states, model)
    except (NotScannedError, MisfitError) as error:
        name = str(file) if isinstance(file, str | PathLike) else "(file object)"
        raise ModelFileError(name, str(error)) from error
    model.set_parameters(fitted, device=model.device)
    for key, value in tensors.items():
        _attribute(model, key).data.copy_(value)
    _set_fields(model, kept)
    parts = tuple(SkippedPart(key, reason) for key, reason in skipped.items())
    return RestoredParameters((*fitted, *tensors, *kept), parts)


def _read(file: ModelFile) -> tuple[Mapping[str, object], dict[str, Any]]:
    """Return the fields of the member ``data``, and what each member with tensors holds, by its name."""
    if isinstance(file, str | PathLike):
        path = Path(file)
        file = path = path if path.suffix or path.exists() else path.with_suffix(".zip")
        if path.exists() and not path.is_file():
            raise MisfitError("is no regular file")
    members = _members(file, "")
    try:
        fields = parsed_fields(members[MODEL_FIELDS]) if MODEL_FIELDS in members else {}
    except NotScannedError as error:
        raise MisfitError(f"its member {MODEL_FIELDS} {error.reason}") from error
    states = {name.removesuffix(".pth"): _tensors(name, members[name]) for name in members if name.endswith(".pth")}
    tensors = states.pop(_TENSORS, None) or {}
    if not isinstance(tensors, Mapping):
        raise MisfitError(f"its member {_TENSORS} is no table")
    return fields, states | {name: value for name, value in tensors.items() if value is not None}


def _members(file: Any, name: str) -> dict[str, bytes]:
    """Return the content of each member of an archive; none is compressed, so that all fit into the file's size."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise MisfitError(f"{name or 'it'} is compressed, which save() never does")
            if len({member.filename for member in members}) != len(members):
                raise MisfitError(f"{name or 'it'} holds a member twice")
            return {member.filename: archive.read(member) for member in members}
    except DAMAGE as error:
        raise MisfitError(f"{name} cannot be read: {error}".strip()) from error


def _tensors(name: str, content: bytes) -> Any:
    """Return what torch reads, after a look at the pickle: some that torch admits take memory for nothing."""
    import torch

    for member, pickled in _members(io.BytesIO(content), name).items():
        imported = content_of(io.BytesIO(pickled)).imports if member.lower().endswith("data.pkl") else ()
        for each in imported:
            is_storage = each.module == "torch" and each.name.endswith("Storage")
            if not is_storage and str(each) not in _IN_WEIGHTS:
                raise MisfitError(f"its member {name} was not loaded: unpickling would import {str(each)!r:.80}")
    found = attempt(lambda: torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    if isinstance(found, Crash):  # torch's reader raises anything for content that it does not admit
        raise MisfitError(f"its member {name} was not loaded: {found.line[:120]}") from found.error
    return found


def _why_skipped(name: str, value: object, model: BaseAlgorithm) -> str:
    if isinstance(value, dict) and SERIALIZED in value:
        return "it is a pickle, which would have to be executed"
    is_automatic = name == "ent_coef" and str in map(type, (value, getattr(model, name, None)))
    return "" if name in _RANGES and not is_automatic else f"the model keeps its own; the file has {value!r:.80}"


def _fitted_field(name: str, value: Any, model: BaseAlgorithm) -> object:
    kind, least, most = _RANGES[name]
    if not hasattr(model, name):
        raise MisfitError(f"its field {name} is unknown to the model; the file is of another algorithm")
    if value is None and name in _MAY_BE_NONE:
        return value
    of_kind = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    if not of_kind or not (least <= value <= most and abs(value) <= sys.float_info.max):
        raise MisfitError(f"its field {name} is {value!r:.80}, not {kind.__name__} from {least} to {most}")
    return value


def _fitted(found: Mapping[str, Any], model: BaseAlgorithm) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return states and tensors as the model takes them over; MisfitError if one is not like the model's own."""
    import torch

    names, tensors = model._get_torch_save_params()
    own: dict[str, Any] = {name: value for name in (*names, *tensors) if (value := _attribute(model, name)) is not None}
    fitted = dict(found)
    for name in names:
        is_optimizer = isinstance(own[name], torch.optim.Optimizer)
        own[name] = (_stepped(own[name]) if is_optimizer else own[name]).state_dict()
        if is_optimizer and name in found:
            fitted[name], own[name] = _aligned(name, found[name], own[name])
    leaves, like = dict(_leaves(fitted)), dict(_leaves(own))
    for name in (*like, *leaves):
        problem = "is unknown to the model" if name not in like else "is missing" if name not in leaves else ""
        if problem := problem or _difference(name, leaves[name], like[name]):
            raise MisfitError(f"{name:.160} {problem}")
    return {name: fitted[name] for name in names}, {name: fitted[name] for name in own if name not in names}


def _stepped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return a copy that has a state of each parameter, after a step with gradients of zero."""
    import torch

    twin = copy.deepcopy(optimizer)
    for parameter in (each for group in twin.param_groups for each in group["params"]):
        parameter.grad = torch.zeros_like(parameter)
    twin.step()
    return twin


def _aligned(name: str, found: Any, own: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Even out what a file may lack: states of parameters without gradients, and options that torch added later."""
    try:
        groups = [{**mine, **group} for group, mine in zip(found["param_groups"], own["param_groups"], strict=True)]
        states = {key: state for key, state in own["state"].items() if key in found["state"]}
        return {**found, "param_groups": groups}, {**own, "state": states}
    except (KeyError, TypeError, ValueError) as error:
        raise MisfitError(f"{name} is no state of this optimizer") from error


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is no table or list, and what is empty, by its place."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{name}: {key}" if name else str(key))
    elif isinstance(tree, list) and tree:
        for number, value in enumerate(tree):
            yield from _leaves(value, f"{name} {number}")
    else:
        yield name, "nothing" if isinstance(tree, Mapping | list) else tree


def _difference(name: str, found: Any, own: Any) -> str:
    """Say what a value must not be. Of the options of an optimizer, only the learning rates may differ."""
    import torch

    if _RATE.fullmatch(name):
        is_rate = type(found) in (int, float) and 0 <= found < math.inf
        return "" if is_rate else f"is {found!r:.80}, not a finite number of at least 0"
    if not isinstance(own, torch.Tensor):
        return "" if type(found) is type(own) and found == own else f"is {found!r:.80}, and the model has {own!r:.80}"
    value = torch.tensor(float(found)) if type(found) in (int, float) else found  # a count of steps, in older files
    if not isinstance(value, torch.Tensor) or (value.dtype, value.shape) != (own.dtype, own.shape):
        return f"is {_kind(found)}, and the model has {_kind(own)}"
    is_good = value.isfinite() & (value >= 0 if _NOT_NEGATIVE.fullmatch(name) else True)
    return "" if bool(is_good.all()) else "is not finite, or negative where it cannot be"


def _kind(value: Any) -> str:
    return f"a tensor {(*value.shape,)} of {value.dtype}" if hasattr(value, "dtype") else repr(value)[:80]


def _attribute(model: BaseAlgorithm, name: str) -> Any:
    return reduce(getattr, name.split("."), model)


def _set_fields(model: BaseAlgorithm, fields: Mapping[str, object]) -> None:
    """Set fields, and the schedules that are made of them."""
    vars(model).update(fields)
    if "learning_rate" in fields:
        model._setup_lr_schedule()
    if hasattr(model, "exploration_schedule") and fields.keys() & set(_EXPLORATION):
        from stable_baselines3.common.utils import LinearSchedule

        vars(model)["exploration_schedule"] = LinearSchedule(*(getattr(model, name) for name in _EXPLORATION))
