"""Restores a model of Stable-Baselines3 from its zip file without unpickling anything.

This module imports torch and stable-baselines3 when it is called; the other modules of the scan do without them.
"""

from __future__ import annotations

import copy
import io
import math
import re
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from rlverify.pickles import DAMAGE, MEBIBYTE, NotScannedError, content_of
from rlverify.records.attempts import Crash, attempt
from rlverify.records.errors import ModelFileError
from rlverify.scan.unpacking import MODEL_FIELDS, SERIALIZED, parsed_fields

if TYPE_CHECKING:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm

ModelFile: TypeAlias = "str | PathLike[str] | BinaryIO"
_States: TypeAlias = dict[str, Any]

_TENSORS: Final = "pytorch_variables"  # the member with single tensors
_DIRECTORY_BYTES: Final = 5  # in the end record of an archive
_BYTES: Final = 16  # of a directory or a pickle, for each instruction that a pickle may have
_MOST_FIELD_BYTES: Final = 32 * MEBIBYTE
_MOST_VALUES: Final = 500_000
_LONGEST_NAME: Final = 1000  # all keys that lead to a value
_EXPLORATION: Final = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
_IN_WEIGHTS: Final = re.compile(
    r"collections\.OrderedDict|torch\._utils\._rebuild_(tensor_v2|parameter)|torch\.\w*Storage"
)
_MOMENT: Final = re.compile(r".*: state: [^:]*: (\w+)")
_LIMITS: Final = {
    **dict.fromkeys(("step", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum"), math.inf),
    **dict.fromkeys(("acc_delta", "exp_inf", "step_size", "eta"), math.inf),
    **dict.fromkeys(("mu", "mu_product"), 1.0),
}
"""The largest value of each moment of an optimizer that cannot be negative."""
_RATE: Final = re.compile(r".*: (lr|initial_lr)")
_COUNT: Final = re.compile(r".*: state: .*|.*: seed")
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
    own = _own(model)
    most = 10_000 + 100 * sum(1 for _ in _leaves(own))
    try:
        fields, states = _read(file, own, most)
        skipped = {key: reason for key, value in fields.items() if (reason := _why_skipped(key, value, model))}
        kept = {key: _fitted_field(key, fields[key], model) for key in fields.keys() - skipped}
        fitted, tensors = _fitted(states, own, model, most)
    except (MisfitError, *DAMAGE) as error:
        name = str(file) if isinstance(file, str | PathLike) else "(file object)"
        raise ModelFileError(name, str(error)) from error
    model.set_parameters(fitted, device=model.device)
    for key, value in tensors.items():
        _attribute(model, key).data.copy_(value)
    _set_fields(model, kept)
    parts = tuple(SkippedPart(key, reason) for key, reason in skipped.items())
    return RestoredParameters((*fitted, *tensors, *kept), parts)


def _read(file: ModelFile, own: Collection[str], most: int) -> tuple[Mapping[str, object], dict[str, Any]]:
    """Return the fields of the member ``data``, and what each member with tensors holds, by its name.

    :param own: the names that there may be, so that their number bounds the cost
    :param most: how many instructions a pickle has at most, from which other limits follow
    """
    if isinstance(file, str | PathLike):
        path = Path(file)
        file = path = path if path.suffix or path.exists() else path.with_suffix(".zip")
        if path.exists() and not path.is_file():
            raise MisfitError("is no regular file")
    with _archive(file, "", most) as archive:
        names = archive.namelist()
        fields = _fields(archive) if MODEL_FIELDS in names else {}
        stems = [name.removesuffix(".pth") for name in names if name.endswith(".pth")]
        if unknown := [stem for stem in stems if stem not in (*own, _TENSORS)]:
            raise MisfitError(f"{unknown[0]:.160} is unknown to the model")
        states = {stem: _tensors(archive, f"{stem}.pth", most) for stem in stems}
    tensors = states.pop(_TENSORS, None) or {}
    if not isinstance(tensors, Mapping):
        raise MisfitError(f"its member {_TENSORS} is no table")
    return fields, states | {name: value for name, value in tensors.items() if value is not None}


@contextmanager
def _archive(file: Any, name: str, most: int) -> Iterator[zipfile.ZipFile]:
    """Open an archive whose members are not compressed, so that all fit into its size, and not too many to list."""
    try:
        with file.open("rb") if isinstance(file, Path) else nullcontext(file) as opened:
            end = zipfile._EndRecData(opened)  # type: ignore[attr-defined]  # before all names are read
            if end and end[_DIRECTORY_BYTES] > _BYTES * most:
                raise MisfitError(f"{name or 'it'} has more members than the model has values")
            with zipfile.ZipFile(opened) as archive:
                members, what = archive.infolist(), name or "it"
                if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                    raise MisfitError(f"{what} is compressed, which save() never does")
                if len({member.filename for member in members}) != len(members):
                    raise MisfitError(f"{what} holds a member twice")
                if sum(member.file_size for member in members) > opened.seek(0, io.SEEK_END):
                    raise MisfitError(f"{what} has members that overlap")
                yield archive
    except DAMAGE as error:
        raise MisfitError(f"{name} cannot be read: {error}".strip()) from error


def _fields(archive: zipfile.ZipFile) -> Mapping[str, object]:
    with archive.open(MODEL_FIELDS) as member:
        text = member.read(_MOST_FIELD_BYTES + 1)
    if len(text) > _MOST_FIELD_BYTES or sum(map(text.count, b",[{")) > _MOST_VALUES or not text.isascii():
        limit = f"{_MOST_FIELD_BYTES // MEBIBYTE} MiB or {_MOST_VALUES} values, or is no ASCII"
        raise MisfitError(f"its member {MODEL_FIELDS} has more than {limit}")
    try:
        return parsed_fields(text)
    except NotScannedError as error:
        raise MisfitError(f"its member {MODEL_FIELDS} {error.reason}") from error


def _tensors(archive: zipfile.ZipFile, name: str, most: int) -> Any:
    """Return what torch reads, after a look at the pickle: some that torch admits take memory for nothing.

    torch may read another archive in the same bytes than `zipfile`, and so it gets one of the members alone.
    """
    import torch

    with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as checked:
        file.write(archive.read(name))
        with _archive(file, name, most) as inner, zipfile.ZipFile(checked, "w") as copied:
            pickles = [each for each in inner.infolist() if each.filename.lower().endswith("data.pkl")]
            if len(pickles) != 1:
                raise MisfitError(f"its member {name} was not loaded: it has {len(pickles)} pickles, not one")
            with inner.open(pickles[0]) as member:
                found = content_of(io.BytesIO(member.read(_BYTES * most)), most)
            names = [str(each) for each in found.imports if not _IN_WEIGHTS.fullmatch(str(each))]
            if names or found.problem:
                reason = f"unpickling would import {names[0]!r:.80}" if names else f"its pickle {found.problem}"
                raise MisfitError(f"its member {name} was not loaded: {reason}")
            for each in inner.infolist():
                copied.writestr(each.filename, inner.read(each))
        checked.seek(0)
        state = attempt(lambda: torch.load(checked, map_location="cpu", weights_only=True))
    if isinstance(state, Crash):  # torch's reader raises anything for content that it does not admit
        raise MisfitError(f"its member {name} was not loaded: {state.line[:120]}") from state.error
    return state


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
    is_unbounded = name == "max_grad_norm" and value == math.inf
    if not of_kind or not (is_unbounded or (least <= value <= most and abs(value) <= sys.float_info.max)):
        raise MisfitError(f"its field {name} is {value!r:.80}, not {kind.__name__} from {least} to {most}")
    return value


def _own(model: BaseAlgorithm) -> _States:
    """Return what the model has by name: states of modules and optimizers, and tensors."""
    import torch

    names, tensors = model._get_torch_save_params()
    own = {name: value for name in (*names, *tensors) if (value := _attribute(model, name)) is not None}
    for name in names:
        is_optimizer = isinstance(own[name], torch.optim.Optimizer)
        own[name] = _state_after_step(own[name]) if is_optimizer else own[name].state_dict()
    return own


def _fitted(found: Mapping[str, Any], own: _States, model: BaseAlgorithm, most: int) -> tuple[_States, _States]:
    """Return states and tensors as the model takes them over; MisfitError if one is not like the model's own."""
    import torch

    names, fitted, like = model._get_torch_save_params()[0], dict(found), dict(own)
    for name in names:
        if name in found and isinstance(_attribute(model, name), torch.optim.Optimizer):
            fitted[name], like[name] = _aligned(name, found[name], own[name], model)
    found_leaves = _leaves(fitted)
    leaves, own_leaves = dict(islice(found_leaves, most)), dict(_leaves(like))
    if next(found_leaves, None):
        raise MisfitError("it has more values than the model")
    for name in (*own_leaves, *leaves):
        problem = "is unknown to the model" if name not in own_leaves else "is missing" if name not in leaves else ""
        if problem := problem or _difference(name, leaves[name], own_leaves[name]):
            raise MisfitError(f"{name:.160} {problem}")
    for name, mean in leaves.items():
        of, _, moment = name.rpartition(": ")
        if moment == "grad_avg" and bool(
            (mean.square() > (1 + 1e-3) * leaves.get(f"{of}: square_avg", math.inf)).any()
        ):
            raise MisfitError(f"{name} is larger than its square_avg allows")
    return {name: fitted[name] for name in names}, {name: fitted[name] for name in own if name not in names}


def _state_after_step(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state of a copy after a step with gradients of zero, so that each parameter has one."""
    import torch

    def on(device: str | None) -> dict[str, Any]:
        memo: dict[int, Any] = {id(optimizer.state): defaultdict(dict)}
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            memo[id(parameter)] = torch.zeros_like(parameter, device=device).requires_grad_(parameter.requires_grad)
            memo[id(parameter)].grad = torch.zeros_like(parameter, device=device)
        twin = copy.deepcopy(optimizer, memo)
        twin.step()
        return twin.state_dict()

    stepped = attempt(partial(on, "meta"))
    return on(None) if isinstance(stepped, Crash) else stepped  # some look at numbers, and need memory for them


def _aligned(name: str, found: Any, own: Any, model: BaseAlgorithm) -> tuple[dict[str, Any], dict[str, Any]]:
    """Even out what a file may lack: states of parameters without gradients, and options that torch added later.

    A rate that a schedule gave beyond its end may be negative. It becomes 0 where the next update replaces it.
    """
    from stable_baselines3.common.base_class import BaseAlgorithm

    try:
        groups = [{**mine, **group} for group, mine in zip(found["param_groups"], own["param_groups"], strict=True)]
        for group in groups if type(model)._update_learning_rate is BaseAlgorithm._update_learning_rate else ():
            if type(group.get("lr")) is float and -math.inf < group["lr"] < 0:
                group["lr"] = 0.0
        states = {key: state for key, state in own["state"].items() if key in found["state"]}
        return {**found, "param_groups": groups}, {**own, "state": states}
    except (KeyError, TypeError, ValueError) as error:
        raise MisfitError(f"{name} is no state of this optimizer") from error


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is no table or list, and what is empty, by its place."""
    if len(name) > _LONGEST_NAME:
        raise MisfitError(f"{name:.160} is unknown to the model")
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            place = key if isinstance(key, str) else _kind(key)
            yield from _leaves(value, f"{name}: {place}" if name else place)
    elif isinstance(tree, list) and tree:
        for number, value in enumerate(tree):
            yield from _leaves(value, f"{name} {number}")
    else:
        yield name, "nothing" if isinstance(tree, Mapping | list) else tree


def _difference(name: str, found: Any, own: Any) -> str:
    """Say what a value must not be. Of the options of an optimizer, only rates and seeds may differ."""
    import torch

    if _RATE.fullmatch(name):
        is_rate = type(found) in (int, float) and 0 <= found <= sys.float_info.max
        return "" if is_rate else f"is {_kind(found)}, not a finite number of at least 0"
    if _COUNT.fullmatch(name) and type(found) is type(own) is int:
        return "" if 0 <= found < 2**64 else f"is {_kind(found)}, not a number from 0 to 2^64"
    if not isinstance(own, torch.Tensor):
        return "" if type(found) is type(own) and found == own else f"is {_kind(found)}, and the model has {_kind(own)}"
    value = torch.tensor(float(found)) if type(found) in (int, float) else found  # a count of steps, in older files
    if not isinstance(value, torch.Tensor) or (value.dtype, value.shape) != (own.dtype, own.shape):
        return f"is {_kind(found)}, and the model has {_kind(own)}"
    most = _LIMITS.get(moment[1]) if (moment := _MOMENT.fullmatch(name)) else None
    parts = torch.split(value.flatten(), MEBIBYTE)  # a whole one would take copies
    is_good = all(
        bool((each.isfinite() & (True if most is None else (each >= 0) & (each <= most))).all()) for each in parts
    )
    if most is None and not (is_good or own.is_meta):  # masks are infinite where those of the model are
        is_good = bool((value.isfinite() | (value == own.cpu())).all())
    return "" if is_good else "is not finite, or negative or above 1 where it cannot be"


def _kind(value: Any) -> str:
    """Describe a value by its type, unless it is short: one text may be in it many times."""
    if hasattr(value, "dtype"):
        return f"a tensor {(*value.shape,)} of {value.dtype}"
    parts = value if type(value) is tuple and len(value) <= 2 else (value,)
    is_short = all(each is None or type(each) in (bool, int, float, str) for each in parts)
    return repr(value)[:80] if is_short else f"a {type(value).__name__}"


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
