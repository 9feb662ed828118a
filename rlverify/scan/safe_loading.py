"""Restores a model of Stable-Baselines3 from its zip file without unpickling anything.

This module imports torch and stable-baselines3 when it is called; the other modules of the scan do without them.
"""

from __future__ import annotations

import copy
import io
import math
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
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

_VARIABLES: Final = ("pytorch_variables", "tensors")  # names of the member with single tensors, today and before 0.9
_EXPLORATION: Final = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
_IN_WEIGHTS: Final = ("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter")
_NOT_NEGATIVE: Final = ("step", "exp_avg_sq", "max_exp_avg_sq", "square_avg")
_MAY_BE_NONE: Final = ("max_grad_norm", "seed", "target_kl")
_FIXED: Final = ("buffer_size", "n_quantiles", "n_steps", "optimize_memory_usage", "policy_kwargs", "use_sde")

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
    settings as the saved one. All of the file is checked first, so that the model changes completely or not at all.
    Memory is bounded by the size of the file.

    :param file: what ``model.save`` wrote; as in Stable-Baselines3, ``.zip`` may be left out
    :param model: a model of the same algorithm and shape
    :return: what was restored, and what was skipped and why
    :raises ModelFileError: if the file cannot be read or does not fit the model, which is unchanged then
    """
    name = str(file) if isinstance(file, str | PathLike) else "(file object)"
    try:
        fields, states = _read(file)
        variables: dict[str, Any] = {}
        for each in (states.pop(key) for key in _VARIABLES if key in states):
            variables |= _table({} if each is None else each, "pytorch_variables")
        skipped = {key: reason for key, value in fields.items() if (reason := _why_skipped(key, value, model))}
        kept = {key: _fitted_field(key, fields[key], model) for key in fields.keys() - skipped}
        modules, tensors = model._get_torch_save_params()
        _require_names("the state", states, modules)
        fitted = {key: _fitted_state(key, states[key], _attribute(model, key)) for key in modules}
        variables = {key: value for key, value in variables.items() if value is not None}
        _require_names("the tensor", variables, [key for key in tensors if _attribute(model, key) is not None])
        for key, value in variables.items():
            _check_tensor(key, value, _attribute(model, key))
    except (NotScannedError, MisfitError) as error:
        raise ModelFileError(name, str(error)) from error
    _restore(model, fitted, variables, kept)
    parts = tuple(SkippedPart(key, reason) for key, reason in skipped.items())
    return RestoredParameters((*fitted, *variables, *kept), parts)


def _read(file: ModelFile) -> tuple[Mapping[str, object], dict[str, Any]]:
    """Return the fields of the member ``data``, and what each member with tensors holds, by its name."""
    if isinstance(file, str | PathLike):
        path = Path(file)
        file = path if path.suffix or path.exists() else path.with_suffix(".zip")
        if path.exists() and not path.is_file():
            raise NotScannedError("unreadable-file", "is no regular file")
    try:
        members = _members(file, "")
        fields = parsed_fields(members[MODEL_FIELDS]) if MODEL_FIELDS in members else {}
    except NotScannedError as error:
        raise NotScannedError(error.rule, f"its member {MODEL_FIELDS} {error.reason}") from error
    states = {name.removesuffix(".pth"): _tensors(name, members[name]) for name in members if name.endswith(".pth")}
    return fields, states


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
        imported = content_of(io.BytesIO(pickled)).imports if member.endswith("/data.pkl") else ()
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
    own = getattr(model, name, None)
    is_automatic = name == "ent_coef" and (isinstance(own, str) or isinstance(value, str))
    if name in _FIXED or is_automatic:
        return f"it is fixed when a model is built; the file has {value!r:.80}"
    return "" if name in _RANGES else "it is no setting or counter that training reads"


def _fitted_field(name: str, value: Any, model: BaseAlgorithm) -> object:
    kind, least, most = _RANGES[name]
    if not hasattr(model, name):
        raise MisfitError(f"its field {name} is unknown to the model; the file is of another algorithm")
    if value is None and name in _MAY_BE_NONE:
        return value
    of_kind = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    if not of_kind or not (least <= value <= most and abs(value) < math.inf):
        raise MisfitError(f"its field {name} is {value!r:.80}, not {kind.__name__} from {least} to {most}")
    return value


def _fitted_state(name: str, found: object, own: Any) -> object:
    """Return the state of a module or an optimizer, or raise MisfitError."""
    import torch

    if not isinstance(own, torch.optim.Optimizer):
        _check_tensors(name, found, own.state_dict())
        return found
    record, groups, like = _table(found, name), own.state_dict()["param_groups"], _after_a_step(own)
    _require_names(f"{name}:", record, ("state", "param_groups"))
    for key, entries in _table(record["state"], name).items():
        if key not in like:
            raise MisfitError(f"{name}: parameter {key!r:.20} is unknown to the model, which has {len(like)}")
        _check_tensors(f"{name}: parameter {key}", entries, like[key])
    found_groups = record["param_groups"]
    if not isinstance(found_groups, Sequence) or len(found_groups) != len(groups):
        raise MisfitError(f"{name} has other groups of parameters than the model's {len(groups)}")
    fitted = [_fitted_group(name, *pair) for pair in zip(found_groups, groups, strict=True)]
    return {"state": record["state"], "param_groups": fitted}


def _fitted_group(name: str, found: object, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the model's own options with the learning rates of the file, which schedules change."""
    group = _table(found, f"{name}: a group")
    rates = {key: group[key] for key in ("lr", "initial_lr") if key in group}
    for key, value in rates.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise MisfitError(f"{name}: the setting {key} is {value!r:.80}, not a finite number of at least 0")
    for key in group.keys() - rates.keys():
        if key not in own or type(group[key]) is not type(own[key]) or group[key] != own[key]:
            expected = f"the model has {own.get(key)!r:.80}"
            raise MisfitError(f"{name}: the setting {key!r:.80} is {group[key]!r:.80}, and {expected}")
    return {**own, **rates}


def _after_a_step(optimizer: torch.optim.Optimizer) -> Mapping[int, Mapping[str, Any]]:
    """Return what an optimizer keeps of each parameter after a step with gradients of zero."""
    import torch

    twin = copy.deepcopy(optimizer)
    for parameter in (each for group in twin.param_groups for each in group["params"]):
        parameter.grad = torch.zeros_like(parameter)
    twin.step()
    state: Mapping[int, Mapping[str, Any]] = twin.state_dict()["state"]
    return state


def _check_tensors(name: str, found: object, own: Mapping[str, Any]) -> None:
    table = _table(found, name)
    _require_names(f"{name}:", table, own)
    for key, like in own.items():
        _check_tensor(f"{name}: {key}", table[key], like)
        if key in _NOT_NEGATIVE and not bool((_tensor(table[key]) >= 0).all()):
            raise MisfitError(f"{name}: {key} is negative")


def _check_tensor(name: str, found: Any, own: Any) -> None:
    """Raise MisfitError unless ``found`` is dense, on the CPU, finite, and of the shape and kind of ``own``."""
    value, like = _tensor(found, name), _tensor(own)
    is_dense = not (value.is_nested or value.is_sparse or value.is_quantized) and value.device.type == "cpu"
    if not is_dense or value.is_floating_point() != like.is_floating_point() or value.is_complex():
        raise MisfitError(f"{name} holds {value.dtype} on {value.device.type}, {value.layout}, expected {like.dtype}")
    if value.shape != like.shape:
        raise MisfitError(f"{name} has the shape {tuple(value.shape)}, expected {tuple(like.shape)}")
    if not bool(value.isfinite().all()):
        raise MisfitError(f"{name} is not finite")


def _tensor(value: Any, name: str = "") -> torch.Tensor:
    import torch

    if isinstance(value, int | float) and not isinstance(value, bool):  # a count of steps, in older files
        return torch.tensor(float(value))
    if not isinstance(value, torch.Tensor):
        raise MisfitError(f"{name} is no tensor")
    return value


def _table(value: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise MisfitError(f"{name} is no table")
    return value


def _require_names(kind: str, found: Mapping[Any, object], expected: Sequence[str] | Mapping[str, object]) -> None:
    for name in expected:
        if name not in found:
            raise MisfitError(f"{kind} {name} is missing")
    for name in found:
        if name not in expected:
            raise MisfitError(f"{kind} {name!r:.80} is unknown to the model")


def _attribute(model: BaseAlgorithm, name: str) -> Any:
    return reduce(getattr, name.split("."), model)


def _restore(model: BaseAlgorithm, states: Mapping[str, Any], variables: Mapping[str, Any], fields: Any) -> None:
    """Change the model; whatever interrupts this, an exception or Ctrl-C, the changes are undone."""
    with ExitStack() as undo:
        for name, state in states.items():
            own = _attribute(model, name)
            undo.callback(own.load_state_dict, copy.deepcopy(own.state_dict()))
            own.load_state_dict(state)
        for name, value in variables.items():
            tensor = _attribute(model, name).data
            undo.callback(tensor.copy_, tensor.clone())
            tensor.copy_(value)
        undo.callback(vars(model).update, dict(vars(model)))
        vars(model).update(fields)
        if "learning_rate" in fields:
            model._setup_lr_schedule()
        if hasattr(model, "exploration_schedule") and fields.keys() & set(_EXPLORATION):
            from stable_baselines3.common.utils import LinearSchedule

            vars(model)["exploration_schedule"] = LinearSchedule(*(getattr(model, name) for name in _EXPLORATION))
        undo.pop_all()
