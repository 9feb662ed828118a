"""One file that holds a running training, and the model that continues it from there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm, maybe_make_env
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import check_for_correct_spaces
from stable_baselines3.common.vec_env import VecEnv

from rlcore.checkpoint import codec
from rlcore.checkpoint.container import read_container, save_container
from rlcore.checkpoint.formats import FORMAT_MODEL
from rlcore.checkpoint.refusal import path_of, quoted, refusals_name, require_place, unusable
from rlcore.checkpoint.storage import DEFAULT_MAX_BYTES
from rlcore.errors import CallOrderError, CheckpointError, ResumeWarning, StateError
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.settings import check_device
from rlcore.resume.algorithms import ALGORITHMS
from rlcore.resume.environments import env_obstacle
from rlcore.resume.generators import restore_generators
from rlcore.resume.obstacles import obstacle
from rlcore.resume.parts import GENERATORS, PARTS, capture_parts
from rlcore.resume.settings import build, decode_settings, encode_settings
from rlcore.resume.stack import is_running
from rlcore.state.generators import capture_generators
from rlcore.state.model_file import existing, generators_untouched, refusals_of, with_ending
from rlcore.state.schema import read_count, read_dict, read_record
from rlcore.types import StateDict
from rlcore.warn import warn_caller

FORMAT: Final = "exact_v1"
SAVED_BY_SB3: Final = "is a file of Stable-Baselines3's save()"
"""How the reader of containers describes such a file."""
_FIELDS: Final = (
    *("format_version", "algorithm", "libraries", "settings", "seed", "device"),
    *("n_envs", "observation_space", "action_space", "state"),
)
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


def write_exact(model: BaseAlgorithm, path: str | os.PathLike[str], global_generators: StateDict) -> None:
    """Do what :func:`save_exact` does, at the start of a rollout.

    :param global_generators: their states before the rollout drew its exploration noise
    """
    require_exact(model, path)
    if isinstance(model, DistributionalPPO):  # it remembers the generators itself
        model.save(Path(path))
        return
    target = with_ending(Path(path))
    with refusals_name(path):
        payload: StateDict = {
            "format_version": FORMAT,
            "algorithm": type(model).__name__,
            "libraries": _versions(),
            "settings": encode_settings(model),
            "seed": model.seed,
            "device": str(model.device),
            "n_envs": model.n_envs,
            "observation_space": codec.encode(model.observation_space, "observation_space"),
            "action_space": codec.encode(model.action_space, "action_space"),
            "state": capture_parts(model, global_generators),
        }
    target.parent.mkdir(parents=True, exist_ok=True)
    save_container(target, payload)


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
    require_place(path, "read")
    record = _read(path)
    if record["format_version"] == FORMAT_MODEL:
        return _load_distributional(path, env, algorithm or DistributionalPPO, custom_objects, device or "auto")
    found = _algorithm(record, algorithm, path)
    device = _device(record["device"], device, path)
    with refusals_of(path, "the settings", custom_objects or ()), refusals_name(path):
        settings = decode_settings(read_dict(record["settings"], "settings"), found, custom_objects or {})
    vec_env = found._wrap_env(maybe_make_env(env, 0))
    with refusals_name(path), unusable("the model"), generators_untouched():
        _require_env(vec_env, record)
        model = build(found, vec_env, settings, device, record["seed"])
        state = read_record(record["state"], "state", (*PARTS, GENERATORS))
        for name, part in PARTS.items():
            with unusable(name):
                part.restore(model, state[name])
    with refusals_name(path), unusable(GENERATORS):
        restore_generators(model, read_dict(state[GENERATORS], GENERATORS))  # last: all before it may draw
    return model


def _load_distributional(
    path: str | os.PathLike[str],
    env: GymEnv,
    algorithm: type[BaseAlgorithm],
    custom_objects: Mapping[str, object] | None,
    device: str,
) -> DistributionalPPO:
    if not issubclass(algorithm, DistributionalPPO):
        raise CheckpointError(
            path_of(path),
            f"is of DistributionalPPO, and algorithm={algorithm.__name__} is asked for; "
            "give algorithm=DistributionalPPO",
        )
    objects = dict(custom_objects or {})
    model = algorithm.load(existing(Path(path)), env, device=device, custom_objects=objects)
    reason = env_obstacle(model.env)
    if reason is not None:
        raise CheckpointError(path_of(path), f"training could not continue exactly in this environment: {reason}")
    return model


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the file, of which the format and the number of environments are checked."""
    try:
        content, has_digest = read_container(
            existing(Path(path)), map_location="cpu", require_digest=False, max_bytes=DEFAULT_MAX_BYTES
        )
    except CheckpointError as error:
        if SAVED_BY_SB3 not in error.reason:
            raise
        raise CheckpointError(
            path_of(path),
            f"{SAVED_BY_SB3}, which holds neither environments nor random generators, so no training can continue "
            "exactly from it; load it with the class that wrote it, such as PPO.load, and save with save_exact() from "
            "now on",
        ) from error
    if not has_digest:
        raise CheckpointError(path_of(path), "carries no digest, so save_exact did not write it; load it with what did")
    version = content.get("format_version")
    if version == FORMAT_MODEL:
        return {str(name): value for name, value in content.items()}
    if version != FORMAT:
        raise CheckpointError(
            path_of(path),
            f"has the format_version {quoted(version)}, and load_exact reads {FORMAT} and {FORMAT_MODEL}; load it with "
            "what wrote it (rlcore.load_checkpoint, or another version of rlcore)",
        )
    with refusals_name(path):
        record = read_record(content, "the file", _FIELDS)
        read_count(record["n_envs"], "n_envs", least=1)
        if record["seed"] is not None:
            read_count(record["seed"], "seed", 2**64)
        _warn_of_versions(read_dict(record["libraries"], "libraries"), path)
    return record


def _algorithm(
    record: Mapping[str, Any], expected: type[BaseAlgorithm] | None, path: str | os.PathLike[str]
) -> type[BaseAlgorithm]:
    name = record["algorithm"]
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise CheckpointError(path_of(path), f"is of the unknown algorithm {quoted(name)}; the file is damaged")
    found = ALGORITHMS[name]
    if expected is not None and expected is not found:
        raise CheckpointError(
            path_of(path), f"is of {name}, and algorithm={expected.__name__} is asked for; give algorithm={name}"
        )
    return found


def _device(saved: Any, asked: str | None, path: str | os.PathLike[str]) -> str:
    if asked is not None:
        check_device(asked)
        return asked
    if not isinstance(saved, str) or not (saved == "cpu" or (saved.startswith("cuda") and torch.cuda.is_available())):
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
    saved: dict[str, Any] = {
        name: codec.decode(record[name], name, {}) for name in ("observation_space", "action_space")
    }
    if not all(isinstance(space, spaces.Space) for space in saved.values()):
        raise StateError("observation_space or action_space is no space; the file is damaged")
    try:
        check_for_correct_spaces(env, **saved)
    except ValueError as error:
        raise StateError(f"the environment is of another kind than that of the run: {error}") from error


def _versions() -> StateDict:
    return {name: metadata.version(name) for name in _LIBRARIES}


def _warn_of_versions(saved: StateDict, path: str | os.PathLike[str]) -> None:
    now = _versions()
    others = [f"{name} {quoted(saved.get(name))} (here {now[name]})" for name in now if saved.get(name) != now[name]]
    if others:
        warn_caller(f"{path}: saved under {', '.join(others)}, so the bits may differ from there on", ResumeWarning)
