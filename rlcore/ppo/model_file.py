"""One file that holds a whole model: settings, spaces and every part of the training state."""

from __future__ import annotations

import io
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import check_for_correct_spaces, get_system_info

from rlcore.checkpoint import codec, loading
from rlcore.checkpoint.container import load_container, save_container
from rlcore.checkpoint.refusal import refusals_name
from rlcore.checkpoint.schema import FORMAT_MODEL, FORMAT_V1
from rlcore.checkpoint.training_state import LEARNT, Scope, TrainingState
from rlcore.errors import CheckpointError, ResumeWarning, SettingError, StateError
from rlcore.ppo import components, config, finished_episodes, space_support
from rlcore.ppo.optimizers import default_learning_rate, find_optimizer, names_learning_rate
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.ppo.suggestions import reject_unknown
from rlcore.warn import warn_caller

if TYPE_CHECKING:
    from stable_baselines3.common.type_aliases import GymEnv

    from rlcore.types import StateDict

FIELDS = ("format_version", "policy_class", "settings", "observation_space", "action_space", "n_envs", "state")
"""What a model file holds, and nothing else."""


class ModelFile(BaseAlgorithm):
    """Saving, loading and pickling of a model; all three carry the parts that the registry of training state names."""

    pending_state: dict[str, StateDict]
    variance_gradient_scaling: bool
    _boundary: dict[str, StateDict | None] | None

    def _training_state(self) -> TrainingState:
        raise NotImplementedError

    def _restore(self, states: Mapping[str, StateDict | None], *, exact_match: bool) -> None:
        raise NotImplementedError

    def save(
        self,
        path: str | Path | io.BufferedIOBase,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write one file, whole or not at all; an old file of that name stays until the new one is complete.

        Once a rollout has begun, and until the update on it is complete, the file holds where the run stood when it
        began (environments, generators, counters, normaliser), so that resuming repeats it exactly.

        What Monitor noted of finished episodes and no file can hold is left out, which one warning says.

        :param path: ``.zip`` is added to a name without ending; or a binary file object
        :param exclude: must be empty, like ``include``: the registry says what belongs to a model
        :raises CheckpointError: if the file cannot be written
        """
        require_place(path, "write")
        if exclude or include:
            raise SettingError(
                "exclude",
                f"exclude={exclude!r}, include={include!r}: a model file holds the whole state; leave them out",
            )
        content = self.__getstate__()
        state = {**content["state"], "progress_state": finished_episodes.storable(content["state"]["progress_state"])}
        payload: StateDict = {"format_version": FORMAT_MODEL, "n_envs": content["n_envs"], "state": state}
        payload["settings"] = {name: codec.encode(value, name) for name, value in content["settings"].items()}
        for name in ENCODED:
            payload[name] = codec.encode(content[name], name)
        target = with_ending(path)
        if isinstance(target, str | Path):
            _make_folder(Path(target).parent)
        save_container(target, payload)

    @classmethod
    def load(
        cls,
        path: str | Path | io.BufferedIOBase,
        env: GymEnv | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = False,
        **settings: Any,
    ) -> Self:
        """Build a model from a file of ``save()`` without executing anything that the file says.

        ``learn(total - model.num_timesteps, reset_num_timesteps=False)`` then goes on exactly where the run stopped, if
        the environments can be restored (see :class:`rlcore.envs.ResumableEnv`).

        :param env: environment to go on in; None for a model that only predicts, until ``set_env``
        :param device: where the model is put
        :param custom_objects: by name, what stands for a setting that no file holds (a lambda, an unregistered class);
            a name that the file does not have is refused
        :param force_reset: drop where the run stood, so that training starts from a reset of the environments; a new
            ``seed`` does so as well, and seeds the generators
        :param settings: settings to change, named and checked as in the constructor; they rule over the file, and
            what they make useless (moments of another optimizer) starts fresh, which a warning says
        :raises CheckpointError: if the file cannot be read as a model, names something unknown, or does not fit ``env``
        :raises SettingError: if one of ``settings`` cannot be used
        """
        if print_system_info:
            get_system_info()
        content = read_model_file(path)
        content = decoded(content, custom_objects or {}, path)
        model = cls.__new__(cls)
        try:
            model._build(content, env, device, settings)
        except StateError as error:
            raise CheckpointError(_shown(path), str(error)) from error
        except MemoryError as error:
            raise CheckpointError(
                _shown(path), f"asks for a model larger than this machine's memory: {error}"
            ) from error
        if force_reset or "seed" in settings:
            model._forget_run()
        if "seed" in settings:
            model.set_random_seed(model.seed)
        return model

    def read_parameters(self, path: str | Path | io.BufferedIOBase) -> dict[str, Any]:
        """What was learnt, from a model file or a checkpoint; of a v1 file the policy alone, which a warning says."""
        content = load_container(existing(path))
        parts = self._training_state().parts
        if content.get("format_version") == FORMAT_MODEL:
            state = read_model_content(content, path)["state"]
            return {key: value for key, value in state.items() if key in parts and parts[key].scope in LEARNT}
        with refusals_name(path):
            checkpoint = loading.from_payload(content)
        if checkpoint.format_version == FORMAT_V1:
            warn_caller(f"{FORMAT_V1}: the file holds only the policy", ResumeWarning)
        data = {str(key): part for key, part in checkpoint.data.items()}
        return {key: part for key, part in data.items() if key not in parts or parts[key].scope in LEARNT}

    def __getstate__(self) -> dict[str, Any]:
        state = {**self._training_state().capture(*Scope), **(self._boundary or {})}
        return {
            "policy_class": self.policy_class,
            "settings": {name: getattr(self, name) for name in config.PPOSettings.model_fields},
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "n_envs": self.n_envs,
            "device": str(self.device),
            "state": state,
        }

    def __setstate__(self, content: dict[str, Any]) -> None:
        self._build(content, None, _present(content["device"]), {})

    def _build(
        self, content: Mapping[str, Any], env: GymEnv | None, device: torch.device | str, settings: Mapping[str, Any]
    ) -> None:
        """Construct the model and restore its state, leaving the global generators as they were."""
        with generators_untouched():
            self.__init__(  # type: ignore[misc]
                content["policy_class"],
                env,
                device=device,
                _init_setup_model=False,
                _asked=settings,
                **_override(content["settings"], settings),
            )
            if env is None:
                self.observation_space = content["observation_space"]
                self.action_space = content["action_space"]
                self.n_envs = content["n_envs"]
            else:
                self._require_spaces(content["observation_space"], content["action_space"])
            self._require_meaning_of_values(content["settings"])
            self._setup_model()
        saved = content["state"] if self.variance_gradient_scaling else _without_scaling(content["state"])
        state = components.under_settings(self, saved, settings, content["settings"]["optimizer_class"])  # type: ignore[arg-type]
        self._restore(state, exact_match=True)
        if state.get("normalizer_state") is not None:
            self.pending_state["normalizer_state"] = state["normalizer_state"]

    def _require_spaces(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        try:
            check_for_correct_spaces(self.env, observation_space, action_space)  # type: ignore[arg-type]
        except ValueError as error:
            raise StateError(f"the environment is of another kind than the model's: {error}") from error

    def _require_meaning_of_values(self, saved: Mapping[str, Any]) -> None:
        """What the critics' outputs mean is learnt with them, and no check of shapes tells two meanings apart.

        :raises SettingError: if a setting would let them mean other returns
        """
        for name in ("value_distribution", "v_min", "v_max"):
            before, now = saved.get(name, config.PPOSettings.model_fields[name].default), getattr(self, name)
            if before != now:
                raise SettingError(
                    name,
                    f"{name}={now!r}, and the model in the file has learnt under {before!r}: its critics would mean "
                    f"other returns; leave {name} out, or train another model with it",
                )

    def _forget_run(self) -> None:
        """Drop where the run stood, so that the next one starts from a reset."""
        for key, part in self._training_state().parts.items():
            if part.scope is Scope.RUN:
                self.pending_state.pop(key, None)


ENCODED: dict[str, type] = {
    "policy_class": DistributionalRecurrentPolicy,
    "observation_space": spaces.Space,
    "action_space": spaces.Space,
}
"""Fields beside the settings that stand in the file as plain values for something else, and for what."""


def decoded(content: Mapping[str, Any], custom_objects: Mapping[str, object], path: Any) -> dict[str, Any]:
    """The content with settings, spaces and policy class turned back from plain values.

    :raises UnknownSettingError: for a custom object that stands for nothing in the file
    """
    asked_for = _AskedFor(custom_objects)
    try:
        settings: dict[str, Any] = {n: codec.decode(value, n, asked_for) for n, value in content["settings"].items()}
        encoded: dict[str, Any] = {name: codec.decode(content[name], name, asked_for) for name in ENCODED}
    except CheckpointError as error:
        raise CheckpointError(_shown(path), error.reason) from error
    reject_unknown(custom_objects, "custom_objects", {"custom_objects": sorted(asked_for.names)})
    for name, wanted in ENCODED.items():
        value = encoded[name]
        if not (
            isinstance(value, type) and issubclass(value, wanted)
            if name == "policy_class"
            else isinstance(value, wanted)
        ):
            raise CheckpointError(_shown(path), f"{name!r} is no {wanted.__name__}")
    try:
        config.resolve_settings(settings, encoded["policy_class"].default_extractor, asked=())
        space_support.require(**encoded, policy_kwargs=settings.get("policy_kwargs", {}))
    except SettingError as error:
        raise CheckpointError(_shown(path), f"holds a setting that cannot be used: {error}") from error
    return {**content, **encoded, "settings": settings}


class _AskedFor(UserDict[str, object]):
    """Custom objects, and every name under which one was asked for."""

    def __init__(self, custom_objects: Mapping[str, object]) -> None:
        super().__init__(custom_objects)
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def _override(saved: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Saved settings with the user's changes, which replace what is saved under another name of the same setting.

    Another optimizer brings its own default rate where the saved one is the default of its optimizer.
    """
    merged = {**saved, **changes}
    if "learning_rate" not in changes and (names_learning_rate(changes) or _had_default_rate(saved, changes)):
        merged["learning_rate"] = None
    if "ent_coef_initial" in changes and "ent_coef" not in changes:
        merged["ent_coef"] = None
    return merged


def _had_default_rate(saved: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Whether the optimizer changes, and the rate is what the old one trains with if none is given."""
    if "optimizer_class" not in changes or "optimizer_class" not in saved:
        return False
    default: object = default_learning_rate(find_optimizer(saved["optimizer_class"]))
    return saved.get("learning_rate") == default


def _without_scaling(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state for a model that is not to scale its gradients; what is lost by that is said."""
    saved = state.get("vgs_state")
    steps = saved.get("step_count") if isinstance(saved, dict) else None
    if isinstance(steps, int) and steps > 0:
        warn_caller(
            f"vgs_state: the gradient statistics of {steps} steps are dropped, as variance_gradient_scaling=False has "
            "no use for them; vgs_alpha=0 would scale by 1 and keep measuring",
            ResumeWarning,
        )
    return {**state, "vgs_state": None}


@contextmanager
def generators_untouched() -> Iterator[None]:
    """Put the global generators back to where they stood."""
    state = components.capture_generators()
    try:
        yield
    finally:
        components.apply_generators(state)


def read_model_file(path: str | Path | io.BufferedIOBase) -> dict[str, Any]:
    """The content of a file of ``save()``, checked field by field."""
    return read_model_content(load_container(existing(path)), path)


def read_model_content(content: Mapping[Any, Any], path: object) -> dict[str, Any]:
    """
    :raises CheckpointError: if the content is no model's
    """
    shown = _shown(path)
    if content.get("format_version") != FORMAT_MODEL:
        raise CheckpointError(
            shown,
            f"no model file (format_version {str(content.get('format_version'))[:60]!r}); a checkpoint of parameters "
            "is read by set_parameters(path) on a model, or rlcore.load_checkpoint(path)",
        )
    if set(content) != set(FIELDS):
        raise CheckpointError(shown, f"a model file holds {', '.join(FIELDS)}; this one {sorted(map(str, content))}")
    mistyped = [name for name in ("settings", "state") if not isinstance(content[name], dict)]
    n_envs = content["n_envs"]
    if isinstance(n_envs, bool) or not isinstance(n_envs, int) or n_envs < 1:
        mistyped.append("n_envs")
    if mistyped:
        raise CheckpointError(shown, f"mistyped fields {mistyped}")
    given, known = set(map(str, content["settings"])), set(config.PPOSettings.model_fields)
    if given - known:
        raise CheckpointError(shown, f"unknown settings {sorted(given - known)}")
    if known - given:
        warn_caller(f"{shown}: has no {sorted(known - given)}; they take their defaults", ResumeWarning)
    return {str(key): value for key, value in content.items()}


def _present(device: str) -> str:
    """The device of a copy: that of its original, or what there is where this machine lacks it."""
    return "auto" if device.startswith("cuda") and not torch.cuda.is_available() else device


def _shown(path: object) -> str | None:
    return str(path) if isinstance(path, str | Path) else None


def _make_folder(folder: Path) -> None:
    """As Stable-Baselines3 does, make the folder that a file is to be saved in."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(folder, f"cannot be made a folder to save in: {error.strerror}") from error


def require_place(path: object, method: Literal["read", "write"]) -> None:
    """
    :param method: what a file object must have
    :raises SettingError: for anything but a path or such a file object
    """
    if not isinstance(path, str | PathLike) and not hasattr(path, method):
        raise SettingError("path", f"path={path!r:.80} is neither a path nor a binary file object; give one")


def with_ending(path: Any) -> Any:
    """``.zip`` for a path without ending, as in Stable-Baselines3."""
    if not isinstance(path, str | Path):
        return path
    return path if Path(path).suffix else Path(f"{path}.zip")


def existing(path: Any) -> Any:
    """The path as it is given, or with ``.zip`` where only that is a file.

    :raises SettingError: if it is neither a path nor a binary file object
    """
    require_place(path, "read")
    return with_ending(path) if isinstance(path, str | Path) and not Path(path).is_file() else path
