"""Format v2: every part of the learner, with the step and the performance at which it was saved."""

from __future__ import annotations

from numbers import Integral, Real

from rlcore.checkpoint import container, schema
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, refusals_name
from rlcore.types import StateDict


def save_checkpoint(path: PathOrFile, parameters: StateDict, *, step: int, performance: float) -> None:
    """Write a v2 checkpoint: exactly ``{format_version, data, step, performance}``, with a digest, atomically.

    :param path: a path, or a binary file object
    :param parameters: what the model's ``get_parameters`` returned; ``policy`` and ``policy.optimizer`` are required
    :param step: training step, at least 0
    :param performance: the score at that step; NaN and infinity are kept
    :raises CheckpointError: parameters that ``load_checkpoint`` would refuse, or a failed write; an older file is
        unchanged
    """
    with refusals_name(path):
        payload: StateDict = {
            "format_version": schema.FORMAT_V2,
            "data": parameters,
            "step": int(step) if _is_number(step, Integral) else step,
            "performance": float(performance) if _is_number(performance, Real) else performance,
        }
        from_payload(payload)
    container.save_container(path, payload)


def from_payload(payload: StateDict) -> schema.Checkpoint:
    """Return the checkpoint that the payload describes.

    :raises RefusedError: missing, unknown or mistyped fields
    """
    schema.check_names(payload, required=schema.V2_FIELDS, place="the checkpoint")
    step, performance = payload["step"], payload["performance"]
    if type(step) is not int or step < 0:
        raise RefusedError(f"'step' must be an integer of at least 0, and is {schema.describe(step)}")
    if type(performance) is not float:
        raise RefusedError(f"'performance' must be a float, and is {schema.describe(performance)}")
    data = schema.checked_data(payload["data"], "'data'")
    return schema.Checkpoint(schema.FORMAT_V2, data, step=step, performance=performance)


def _is_number(value: object, kind: type) -> bool:
    """Say whether a NumPy or plain number of this kind was given; a bool is none."""
    return isinstance(value, kind) and not isinstance(value, bool)
