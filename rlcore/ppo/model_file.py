"""One file that holds a whole model: settings, spaces and every part of the training state."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.utils import check_for_correct_spaces, get_system_info

from rlcore.checkpoint import codec, formats
from rlcore.checkpoint.container import load_container, save_container
from rlcore.checkpoint.formats import FORMAT_MODEL, FORMAT_V1
from rlcore.checkpoint.refusal import refusals_name, require_place
from rlcore.errors import CheckpointError, ResumeWarning, SettingError, StateError
from rlcore.ppo import adapted_state, construction, weights
from rlcore.ppo.construction import ConfiguredPPO, own_names
from rlcore.ppo.model_content import (
    ENCODED,
    OWN_SETTINGS,
    decoded,
    existing,
    read_model_content,
    read_model_file,
    refusals_of,
    with_ending,
)
from rlcore.ppo.settings import PPOSettings, check_device, default_learning_rate, find_optimizer
from rlcore.state.generators import apply_generators, capture_generators
from rlcore.state.progress import storable
from rlcore.state.registry import LEARNT, Scope
from rlcore.warn import warn_caller

if TYPE_CHECKING:
    from stable_baselines3.common.type_aliases import GymEnv

    from rlcore.types import StateDict

LARGEST_LSTM_STATES = 2**27
"""Bytes that a file may ask for without holding them (128 MiB)."""


class ModelFile(ConfiguredPPO):
    """Saving, loading and pickling of a model; all three carry the parts that the registry of training state names."""

    def _relink_scaler(self) -> None:
        raise NotImplementedError

    def _restore(self, states: Mapping[str, Any], *, exact_match: bool, expected: Collection[Scope] = LEARNT) -> None:
        """Restore parts of the training state, as :meth:`TrainingState.restore` does."""
        training_state = self._training_state()
        weights.warn_of_casts(states.get("policy"), states.get("policy.optimizer"), self.policy.state_dict())
        training_state.restore(states, exact_match=exact_match, expected=expected)
        self._relink_scaler()
        if self._boundary is not None:
            collected = training_state.capture(Scope.COLLECTED)
            self._boundary.update({key: state for key, state in collected.items() if exact_match or key in states})

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
        state = {**content["state"], "progress_state": storable(content["state"]["progress_state"])}
        payload: StateDict = {"format_version": FORMAT_MODEL, "n_envs": content["n_envs"], "state": state}
        payload["settings"] = {name: codec.encode(value, name) for name, value in content["settings"].items()}
        if content[OWN_SETTINGS]:
            payload[OWN_SETTINGS] = {name: codec.encode(value, name) for name, value in content[OWN_SETTINGS].items()}
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
            a name that the file does not have is refused. ``lr_schedule`` stands for ``learning_rate``
        :param force_reset: drop where the run stood, so that training starts from a reset of the environments; a new
            ``seed`` does so as well, and seeds the generators
        :param settings: settings to change, named and checked as in the constructor; they rule over the file, also
            where it holds what cannot be read, and what they make useless (moments of another optimizer) starts fresh,
            which a warning says
        :raises CheckpointError: if the file cannot be read as a model, names something unknown, or does not fit ``env``
        :raises SettingError: if one of ``settings`` cannot be used
        """
        if print_system_info:
            get_system_info()
        check_device(device)
        env = None if env is None else cls._wrap_env(maybe_make_env(env, 0))
        content = decoded(read_model_file(path), custom_objects or {}, path, settings)
        model = cls.__new__(cls)
        with refusals_of(path, "the model", settings):
            model._build(content, env, device, settings)
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
            state: dict[str, Any] = read_model_content(content, path)["state"]
            return {key: value for key, value in state.items() if key in parts and parts[key].scope in LEARNT}
        with refusals_name(path):
            checkpoint = formats.from_payload(content)
        if checkpoint.format_version == FORMAT_V1:
            warn_caller(f"{FORMAT_V1}: the file holds only the policy", ResumeWarning)
        data = {str(key): part for key, part in checkpoint.data.items()}
        return {key: part for key, part in data.items() if key not in parts or parts[key].scope in LEARNT}

    def __getstate__(self) -> dict[str, Any]:
        state = {**self._training_state().capture(*Scope), **(self._boundary or {})}
        return {
            "policy_class": self.policy_class,
            "settings": {name: getattr(self, name) for name in PPOSettings.model_fields},
            OWN_SETTINGS: self.own_settings(),
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
            own, changes = self._own_and_others(content[OWN_SETTINGS], settings)
            self.__init__(content["policy_class"], env, device=device, _init_setup_model=False, **own)  # type: ignore[misc]
            self._configure(_override(content["settings"], changes), changes)
            if env is None:
                self.observation_space = content["observation_space"]
                self.action_space = content["action_space"]
                self.n_envs = content["n_envs"]
                self._require_lstm_states_of(content["state"])
            else:
                self._require_spaces(content["observation_space"], content["action_space"])
            self._require_meaning_of_values(content["settings"])
            self._require_network_of(content["state"])
            self._setup_model()
        saved = content["state"] if self.variance_gradient_scaling else _without_scaling(content["state"])
        optimizer_class = content["settings"].get("optimizer_class", self.optimizer_class)
        state = adapted_state.under_settings(self, saved, settings, optimizer_class)
        if saved.get("env_state") is not None and saved.get("lstm_state") is None:
            raise StateError("env_state is given without lstm_state, so no rollout could begin; the state is damaged")
        self._restore(state, exact_match=True, expected=tuple(Scope))
        if state.get("normalizer_state") is not None:
            self.pending_state["normalizer_state"] = state["normalizer_state"]

    def _own_and_others(
        self, saved: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the constructor of a subclass takes, saved or asked for, and the settings of DistributionalPPO.

        :raises StateError: if another class was saved, which takes more
        """
        names = own_names(type(self))
        if unknown := sorted(set(saved) - set(names)):
            raise StateError(
                f"holds {unknown}, which {type(self).__name__} does not take: a subclass of it was saved; load the "
                "file with that class"
            )
        own = {name: {**saved, **asked}[name] for name in names if name in saved or name in asked}
        return own, {name: value for name, value in asked.items() if name not in names}

    def _require_spaces(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        try:
            check_for_correct_spaces(self.env, observation_space, action_space)  # type: ignore[arg-type]
        except ValueError as error:
            raise StateError(f"the environment is of another kind than the model's: {error}") from error

    def _require_network_of(self, state: Mapping[str, Any]) -> None:
        """Compare the network that the settings ask for with the weights of the file, before it takes memory.

        :raises StateError: if they do not fit
        """
        construction.require_spaces(self.observation_space, self.action_space, self.policy_class)
        self._setup_lr_schedule()
        construction.require_network_of(self, state.get("policy"))

    def _require_lstm_states_of(self, state: Mapping[str, Any]) -> None:
        """
        :raises StateError: if the number of environments asks for LSTM states that are large and not in the file
        """
        network, saved = self.policy_kwargs, state.get("lstm_state")
        starts = saved.get("episode_starts") if isinstance(saved, dict) else None
        size = 16 * self.n_envs * network.get("n_lstm_layers", 1) * network.get("lstm_hidden_size", 256)
        if size > LARGEST_LSTM_STATES and not (isinstance(starts, torch.Tensor) and starts.numel() == self.n_envs):
            raise StateError(
                f"n_envs={self.n_envs} asks for {size >> 20} MiB of LSTM states, and the file holds none of so many "
                "environments; the file is damaged"
            )

    def _require_meaning_of_values(self, saved: Mapping[str, Any]) -> None:
        """What the critics' outputs mean is learnt with them, and no check of shapes tells two meanings apart.

        :raises SettingError: if a setting would let them mean other returns
        """
        for name in ("value_distribution", "v_min", "v_max"):
            before, now = saved.get(name, PPOSettings.model_fields[name].default), getattr(self, name)
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


def _override(saved: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Saved settings with the user's changes, which replace what is saved under another name of the same setting.

    Another optimizer brings its own default rate where the saved one is the default of its optimizer.
    """
    merged = {**saved, **changes}
    if "learning_rate" not in changes and _had_default_rate(saved, changes):
        merged["learning_rate"] = None
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
    state = capture_generators()
    try:
        yield
    finally:
        apply_generators(state)


def _present(device: str) -> str:
    """The device of a copy: that of its original, or what there is where this machine lacks it."""
    return "auto" if device.startswith("cuda") and not torch.cuda.is_available() else device


def _make_folder(folder: Path) -> None:
    """As Stable-Baselines3 does, make the folder that a file is to be saved in."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", error)
        raise CheckpointError(folder, f"cannot be made a folder to save in: {reason}") from error
