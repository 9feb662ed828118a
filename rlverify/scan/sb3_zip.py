"""Restores a model of Stable-Baselines3 from its zip file without unpickling anything.

This is the only module of rlverify that needs torch and stable-baselines3. It imports them when it is called.
"""

from __future__ import annotations

import copy
import io
import pickle
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, cast

from rlverify.pickles.bounded_reading import DAMAGE, MEBIBYTE, NotScannedError, PackedStream, UnpackBudget
from rlverify.records.errors import ModelFileError
from rlverify.scan.model_fields import MAX_FIELD_BYTES, parsed_fields
from rlverify.scan.pickle_findings import Place
from rlverify.scan.plain_fields import FieldValueError, SkippedPart, SortedFields, sort_fields
from rlverify.scan.state_checks import (
    joined,
    mistakes_in_names,
    mistakes_in_optimizer,
    mistakes_in_tensor,
    mistakes_in_weights,
)
from rlverify.scan.unpacking import MODEL_FIELDS, findings_of_content

if TYPE_CHECKING:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm

ModelFile: TypeAlias = "str | PathLike[str] | BinaryIO"

MAX_STATE_BYTES: Final = 2048 * MEBIBYTE
"""How much is read of one member with weights or an optimizer state."""
_VARIABLES: Final = ("pytorch_variables", "tensors")
"""Names of the member with single tensors, today and before 0.9."""
_EXPLORATION: Final = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
_DAMAGE_IN_STATES: Final = (
    *DAMAGE,
    pickle.UnpicklingError,
    struct.error,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
)
"""What torch's reader of weights raises for content that it does not admit."""


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

    :param file: what ``model.save`` wrote; as in Stable-Baselines3, ``.zip`` may be left out
    :param model: a model of the same algorithm and shape
    :return: what was restored, and what was skipped and why
    :raises ModelFileError: if the file cannot be read or does not fit the model, which is unchanged then
    """
    name = str(file) if isinstance(file, str | PathLike) else "(file object)"
    try:
        content = _read(file)
        fields = sort_fields(content.fields, vars(model))
    except (NotScannedError, FieldValueError) as error:
        raise ModelFileError(name, str(error)) from error
    if mistakes := joined(_mistakes(content, model)):
        raise ModelFileError(name, mistakes)
    return _restore(content, fields, model)


@dataclass(frozen=True)
class _Content:
    """A file: fields of the member ``data``, states by the name of a module or optimizer, and single tensors."""

    fields: Mapping[str, object]
    states: Mapping[str, Any]
    variables: Mapping[str, Any]


def _read(file: ModelFile) -> _Content:
    try:
        with zipfile.ZipFile(_with_suffix(file)) as archive:
            names = archive.namelist()
            if len(set(names)) != len(names):
                raise NotScannedError("unreadable-file", "holds a member twice")
            fields = _fields_in(archive) if MODEL_FIELDS in names else {}
            states = {
                each.removesuffix(".pth"): _state_in(archive, each) for each in sorted(names) if each.endswith(".pth")
            }
    except DAMAGE as error:
        raise NotScannedError("unreadable-file", f"cannot be read: {error}") from error
    variables = [states.pop(name) for name in _VARIABLES if name in states]
    if not all(isinstance(each, Mapping | None) for each in variables):
        raise NotScannedError("unreadable-file", "its pytorch_variables are no table")
    return _Content(fields, states, {name: each[name] for each in variables if each for name in each})


def _with_suffix(file: ModelFile) -> Any:
    if isinstance(file, str | PathLike):
        path = Path(file)
        return path if path.suffix or path.exists() else path.with_suffix(".zip")
    return file


def _unpacked(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    with archive.open(name) as packed:
        unpacked, problem = UnpackBudget(most, most + 1).unpack(cast(PackedStream, packed))
    with unpacked:
        content = unpacked.read()
    if problem is not None:
        raise NotScannedError(problem.rule, f"its member {name} {problem.reason}")
    return content


def _fields_in(archive: zipfile.ZipFile) -> Mapping[str, object]:
    try:
        return parsed_fields(_unpacked(archive, MODEL_FIELDS, MAX_FIELD_BYTES))
    except NotScannedError as error:
        raise NotScannedError(error.rule, f"its member {MODEL_FIELDS} {error.reason}") from error


def _state_in(archive: zipfile.ZipFile, name: str) -> Any:
    import torch

    content = _unpacked(archive, name, MAX_STATE_BYTES)
    _require_uncompressed(name, content)
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except _DAMAGE_IN_STATES as error:
        reason = _imports_in(content) or f"torch does not read it as weights ({type(error).__name__})"
        raise NotScannedError("unreadable-file", f"its member {name} was not loaded: {reason}") from error


def _require_uncompressed(name: str, content: bytes) -> None:
    """So that what torch unpacks is no larger than the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            is_stored = all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())
    except zipfile.BadZipFile as error:
        raise NotScannedError("unreadable-file", f"its member {name} is not in torch's zip format") from error
    if not is_stored:
        raise NotScannedError("unreadable-file", f"its member {name} is compressed, which torch.save never does")


def _imports_in(content: bytes) -> str:
    found = findings_of_content(io.BytesIO(content), Place(""), depth=1)
    return "; ".join(each.message for each in found if each.rule.startswith("pickle"))


def _mistakes(content: _Content, model: BaseAlgorithm) -> Iterator[str]:
    import torch

    states, variables = model._get_torch_save_params()
    yield from mistakes_in_names("the state", content.states, states)
    yield from mistakes_in_names("the tensor", content.variables, variables)
    for name in sorted(content.states.keys() & set(states)):
        own = _attribute(model, name)
        if isinstance(own, torch.optim.Optimizer):
            yield from mistakes_in_optimizer(name, content.states[name], own)
        else:
            yield from mistakes_in_weights(name, content.states[name], own.state_dict())
    for name in sorted(content.variables.keys() & set(variables)):
        if content.variables[name] is not None:
            yield from mistakes_in_tensor(name, content.variables[name], _attribute(model, name))


def _attribute(model: BaseAlgorithm, name: str) -> Any:
    return reduce(getattr, name.split("."), model)


def _restore(content: _Content, fields: SortedFields, model: BaseAlgorithm) -> RestoredParameters:
    """Change the model; whatever interrupts this, an exception or Ctrl-C, the changes are undone."""
    with ExitStack() as undo:
        for name, state in content.states.items():
            own = _attribute(model, name)
            undo.callback(own.load_state_dict, copy.deepcopy(own.state_dict()))
            own.load_state_dict(state)
        variables = {name: value for name, value in content.variables.items() if value is not None}
        for name, value in variables.items():
            tensor = _attribute(model, name)
            undo.callback(_overwrite, tensor, tensor.detach().clone())
            _overwrite(tensor, value)
        before = dict(vars(model))
        undo.callback(vars(model).update, before)
        vars(model).update(fields.to_set)
        _renew_schedules(model, fields.to_set)
        undo.pop_all()
    return RestoredParameters((*content.states, *variables, *fields.to_set), fields.skipped)


def _overwrite(tensor: torch.Tensor, value: torch.Tensor) -> None:
    tensor.data.copy_(value)


def _renew_schedules(model: BaseAlgorithm, changed: Mapping[str, object]) -> None:
    """Schedules that a model makes from plain fields when it is built."""
    if "learning_rate" in changed:
        model._setup_lr_schedule()
    if hasattr(model, "exploration_schedule") and changed.keys() & set(_EXPLORATION):
        from stable_baselines3.common.utils import LinearSchedule

        vars(model)["exploration_schedule"] = LinearSchedule(*(getattr(model, name) for name in _EXPLORATION))
