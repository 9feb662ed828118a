"""Saves a running training in one file, and loads the model that continues it from there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from stable_baselines3.common.base_class import BaseAlgorithm, maybe_make_env
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv

from rlcore.checkpoint.refusal import path_of, quoted, refusals_name, require_place, unusable
from rlcore.errors import CallOrderError, CheckpointError, ResumeWarning, StateError
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.construction import check_device
from rlcore.resume.parts import GENERATORS, PARTS, capture_parts, restore_generators
from rlcore.resume.settings import ALGORITHMS, build, decode_settings, encode_settings, env_obstacle, obstacle
from rlcore.state.generators import capture_generators
from rlcore.state.model_file import (
    DEFAULT_ALGORITHM,
    decode_spaces,
    existing,
    generators_untouched,
    read_model_file,
    refusals_of,
    require_spaces,
    write_model_file,
)
from rlcore.state.tree import FREE, Rule, fit
from rlcore.types import StateDict
from rlcore.warn import warn_caller

_LIBRARIES: Final = ("stable-baselines3", "sb3-contrib", "torch", "numpy", "gymnasium")


def save_exact(model: BaseAlgorithm, path: str | os.PathLike[str]) -> None:
    """Save a running training, so that :func:`load_exact` continues it bit by bit as if it had not been interrupted.

    The file holds settings, networks, optimizers, replay buffer, action noise, counters, the state of every environment
    and all random generators. It has a digest and is written whole or not at all.

    :param model: a DistributionalPPO, whose file is that of its ``save()``, or a PPO, A2C, DQN, SAC, TD3, TRPO,
        RecurrentPPO, TQC, QRDQN or MaskablePPO; its environments are wrapped in :class:`rlcore.ResumableEnv` or
        implement ``get_state`` and ``set_state``
    :param path: ``.zip`` is added to a name without ending
    :raises CheckpointError: a part of the training cannot be saved, which the message names, or the file cannot be
        written; an older file is unchanged
    :raises CallOrderError: during a rollout, which no file can continue; use :class:`SaveExactly`
    """
    require_place(path, "write")
    if is_running(model, "collect_rollouts") and not isinstance(model, DistributionalPPO):
        raise CallOrderError(
            "save_exact was called while a rollout is collected, and a rollout cannot be continued in its middle; "
            "nothing was written. Pass callback=SaveExactly(...) to learn(), which saves before the next rollout."
        )
    write_exact(model, path, capture_generators())


def is_running(model: object, method: str, frame: FrameType | None = None) -> bool:
    """Say whether ``method`` of ``model`` is one of the calls that led here, or to ``frame``.

    :param method: ``learn`` or ``collect_rollouts``, also of a parent class
    """
    each: FrameType | None = frame or sys._getframe(1)
    while each is not None:
        if each.f_code.co_name == method and each.f_locals.get("self") is model:
            return True
        each = each.f_back
    return False


def write_exact(model: BaseAlgorithm, path: str | os.PathLike[str], global_generators: StateDict) -> None:
    """Do what :func:`save_exact` does, at the start of a rollout.

    :param global_generators: their states before the rollout drew its exploration noise
    """
    require_exact(model, path)
    if isinstance(model, DistributionalPPO):  # it remembers the generators itself
        model.save(Path(path))
        return
    with refusals_name(path):
        settings, state = encode_settings(model), capture_parts(model, global_generators)
    more: Any = {"libraries": _versions(), "seed": model.seed, "device": str(model.device)}
    write_model_file(Path(path), model, type(model).__name__, settings=settings, state=state, **more)


def require_exact(model: BaseAlgorithm, path: str | os.PathLike[str]) -> None:
    """
    :raises CheckpointError: ``model`` cannot be saved exactly; the message says why
    """
    reason = obstacle(model)
    if reason is not None:
        raise CheckpointError(path_of(path), f"was not written, as training could not continue exactly: {reason}")


def load_exact(
    path: str | os.PathLike[str],
    env: GymEnv,
    *,
    algorithm: type[BaseAlgorithm] | None = None,
    custom_objects: Mapping[str, object] | None = None,
    device: str | None = None,
) -> BaseAlgorithm:
    """Return a model that continues the training of a file of :func:`save_exact`; nothing in the file is executed.

    Continue it with :func:`continue_learning`. Loading sets the global generators of Python, NumPy and torch, so do not
    draw from them in between. After an error ``env`` has to be reset, and the generators are unchanged.

    :param env: environments as they were built for the run, of the same number and in the same wrappers
    :param algorithm: the class that the file must be of; None for any of the eleven, which a subclass of
        DistributionalPPO is not
    :param custom_objects: by setting, what no file can hold: ``{"learning_rate": schedule, "policy": MyPolicy,
        "policy_kwargs.features_extractor_class": MyExtractor}``
    :param device: None for the one that the run was on; training on another continues, but not to the same bits
    :raises CheckpointError: the file is damaged, is of another kind, or does not fit ``env`` or ``algorithm``
    :raises UnknownSettingError: the file has no field for a custom object
    """
    record = read_model_file(path, require_digest=True)
    name, objects = record["algorithm"], dict(custom_objects or {})
    known: dict[str, type[BaseAlgorithm]] = {DEFAULT_ALGORITHM: DistributionalPPO, **ALGORITHMS}
    found = known.get(name)
    if found is None:
        raise CheckpointError(path_of(path), f"is of the unknown algorithm {quoted(name)}; the file is damaged")
    if found is DistributionalPPO and algorithm is not None and issubclass(algorithm, found):
        found = algorithm
    if algorithm not in (None, found):
        asked = getattr(algorithm, "__name__", "")
        raise CheckpointError(path_of(path), f"is of {name}, and algorithm={asked} is asked for; give algorithm={name}")
    if issubclass(found, DistributionalPPO):
        loaded = found.load(existing(path), env, device=device or "auto", custom_objects=objects)
        if (reason := env_obstacle(loaded.env)) is not None:
            raise CheckpointError(path_of(path), f"training could not continue exactly in this environment: {reason}")
        return loaded
    form = {"libraries": {}, "seed": 0, "device": ""}
    with refusals_name(path):
        given = {name: record.get(name) for name in form}
        fields = fit(given, form, "the file", {"libraries": FREE, "seed": Rule(0, 2**64, optional=True)})
    _warn_of_versions(fields["libraries"], path)
    device = _device(fields["device"], device, path)
    with refusals_of(path, "the settings", objects):
        settings = decode_settings(record["settings"], found, objects)
    vec_env = found._wrap_env(maybe_make_env(env, 0))
    with refusals_name(path), unusable("the model"), generators_untouched():
        _require_env(vec_env, record)
        model = build(found, vec_env, settings, device, fields["seed"])
        names = (*PARTS, GENERATORS)
        state = fit(record["state"], dict.fromkeys(names), "state", dict.fromkeys(names, FREE))
        for name, part in PARTS.items():
            with unusable(name):
                part.restore(model, state[name])
    with refusals_name(path), unusable(GENERATORS):
        restore_generators(model, state[GENERATORS])  # last: all before it may draw
    return model


def _device(saved: str, asked: str | None, path: str | os.PathLike[str]) -> str:
    if asked is not None:
        check_device(asked)
        return asked
    if not (saved == "cpu" or (saved.startswith("cuda") and torch.cuda.is_available())):
        raise CheckpointError(
            path_of(path),
            f"was saved on the device {quoted(saved)}, which is not there; device='cpu' continues, but not exactly",
        )
    return saved


def _require_env(env: VecEnv, record: Mapping[str, Any]) -> None:
    """
    :raises StateError: other spaces, another number of environments, or environments that cannot take a state
    """
    reason = env_obstacle(env)
    if reason is not None:
        raise StateError(f"training could not continue exactly in this environment: {reason}")
    if env.num_envs != record["n_envs"]:
        raise StateError(
            f"the run had {record['n_envs']} environments, and this vectorised environment has {env.num_envs}; "
            f"build it with n_envs={record['n_envs']}"
        )
    require_spaces(env, decode_spaces(record, {}))


def _versions() -> StateDict:
    return {name: metadata.version(name) for name in _LIBRARIES}


def _warn_of_versions(saved: Any, path: str | os.PathLike[str]) -> None:
    before, now = saved if isinstance(saved, dict) else {}, _versions()
    others = [f"{name} {quoted(before.get(name))} (here {now[name]})" for name in now if before.get(name) != now[name]]
    if others:
        warn_caller(f"{path}: saved under {', '.join(others)}, so the bits may differ from there on", ResumeWarning)
