"""Saving, loading and pickling of DistributionalPPO, and going on with a saved model."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import torch
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.utils import get_system_info

from rlcore.checkpoint import codec, formats
from rlcore.checkpoint.container import load_container, path_of, refusals_name
from rlcore.checkpoint.formats import SPACES, read_model_file, refusals_of, require_spaces_of
from rlcore.envs import vec_state
from rlcore.errors import CheckpointError, ResumeWarning, SettingError, StateError, warn_caller
from rlcore.ppo import construction, state_parts
from rlcore.ppo.construction import ConfiguredPPO, check_device
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.ppo.settings import SCALER, SHOWN, PPOSettings, find_optimizer, part_of, resolve_settings
from rlcore.state.network import quickly_drawn
from rlcore.state.training import LEARNT, Scope, generators_untouched
from rlcore.state.tree import fit_optimizer, missing_moments
from rlcore.types import StateDict

if TYPE_CHECKING:
    from stable_baselines3.common.type_aliases import GymEnv

NO_SETTINGS: Final = ("policy", "env", "device", "_init_setup_model")
"""What the constructor takes next to settings."""
LARGEST_LSTM_STATES = 2**27
"""Bytes of LSTM states that a file may ask for (128 MiB) if no environments are given."""
SCALER_SETTINGS = part_of(SCALER)
OPTIMIZER_SETTINGS = {"learning_rate", "critic_lr_multiplier", "optimizer_class", "optimizer_kwargs", "policy_kwargs"}


class SavablePPO(ConfiguredPPO):
    """Saves, loads and pickles a model; all three carry the parts that the registry of training state names."""

    def _relink_scaler(self) -> None:
        raise NotImplementedError

    def save(
        self,
        path: str | Path | io.BufferedIOBase,
        exclude: Iterable[str] | None = None,  # noqa: ARG002
        include: Iterable[str] | None = None,  # noqa: ARG002
    ) -> None:
        """Write one file, whole or not at all; an old file of that name stays until the new one is complete.

        Once a rollout has begun, and until the update on it is complete, the file holds where the run stood when it
        began (environments, generators, counters, normaliser), so that resuming repeats it exactly.

        :param path: ``.zip`` is added to a name without ending; or a binary file object
        :param exclude: has no effect, like ``include``: a file holds the whole state
        :raises CheckpointError: if the file cannot be written
        """
        content = self.__getstate__()
        encoded: dict[str, Any] = {
            part: {name: codec.encode(value, name) for name, value in content[part].items()}
            for part in ("settings", "own_settings")
        }
        encoded["policy_class"] = codec.encode(content["policy_class"], "policy_class")
        formats.write_model_file(path, self, formats.DEFAULT_ALGORITHM, state=content["state"], **encoded)

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
        the environments can be restored (see :class:`rlcore.ResumableEnv`).

        :param env: environment to go on in; None for a model that only predicts, until ``set_env``
        :param device: where the model is put
        :param custom_objects: by name, what replaces a setting that no file holds (a lambda, an unregistered class)
        :param force_reset: drop where the run stood, so that training starts from a reset of the environments; a new
            ``seed`` does so as well, and seeds the generators
        :param settings: settings to change, named and checked as in the constructor; they rule over the file. Moments
            of another optimizer and statistics of another estimator start fresh, with a warning
        :raises CheckpointError: if the file cannot be read as a model, names something unknown, or does not fit ``env``
            or ``settings``
        :raises SettingError: if one of ``settings`` cannot be used
        """
        if print_system_info:
            get_system_info()
        content = decoded(read_model_file(path), custom_objects or {}, path)
        model = cls._of_content(content, path, env, device, settings)
        if force_reset or "seed" in settings:
            model.pending_state = {key: s for key, s in model.pending_state.items() if key == "normalizer_state"}
        if "seed" in settings:
            model.set_random_seed(model.seed)
        return model

    @classmethod
    def _of_content(
        cls,
        content: Mapping[str, Any],
        path: Any,
        env: GymEnv | None,
        device: torch.device | str,
        settings: Mapping[str, Any],
    ) -> Self:
        """Build a model from the :func:`decoded` content of a file; ``env``, ``device`` and ``settings`` as in load."""
        check_device(device)
        env = None if env is None else cls._wrap_env(maybe_make_env(env, 0))
        model = cls.__new__(cls)
        with refusals_of(path, "the model", settings):
            model._build(content, env, device, settings)
        return model

    def read_parameters(self, path: str | Path | io.BufferedIOBase) -> dict[str, Any]:
        """Return what was learnt from a model file or a checkpoint; a v1 file has the policy alone, with a warning."""
        content = load_container(formats.existing(path))
        if content.get("format_version") in formats.FORMATS_OF_MODELS:
            state: StateDict = formats.read_content(content, path)["state"]
        else:
            with refusals_name(path):
                checkpoint = formats.from_payload(content)
            if checkpoint.format_version == formats.FORMAT_V1:
                formats.warn_of_v1()
            state = checkpoint.data
        parts = self._training_state().parts
        return {str(key): each for key, each in state.items() if key not in parts or parts[str(key)].scope in LEARNT}

    def __getstate__(self) -> dict[str, Any]:
        return {
            "policy_class": self.policy_class,
            "settings": {name: getattr(self, name) for name in PPOSettings.model_fields},
            "own_settings": self.own_settings(),
            **{name: getattr(self, name) for name in (*SPACES, "n_envs")},
            "device": str(self.device),
            "state": {**self._training_state().capture(*Scope), **(self._boundary or {})},
        }

    def __setstate__(self, content: dict[str, Any]) -> None:
        is_absent = content["device"].startswith("cuda") and not torch.cuda.is_available()
        self._build(content, None, "auto" if is_absent else content["device"], {})

    def own_settings(self) -> dict[str, Any]:
        """Return what only the constructor of a subclass takes, as the attributes of the same names have it."""
        return {name: getattr(self, name) for name in own_names(type(self))}

    def _build(
        self, content: Mapping[str, Any], env: GymEnv | None, device: torch.device | str, settings: Mapping[str, Any]
    ) -> None:
        """Construct the model and restore its state, leaving the global generators as they were."""
        saved, state = content["settings"], dict(content["state"])
        names = own_names(type(self))
        if unknown := sorted(set(content["own_settings"]) - set(names)):
            raise StateError(
                f"holds {unknown}, as a subclass of {type(self).__name__} does; load the file with that class"
            )
        own = {name: value for name, value in {**content["own_settings"], **settings}.items() if name in names}
        changes = {name: value for name, value in settings.items() if name not in names}
        with generators_untouched():
            self.__init__(content["policy_class"], env, device=device, _init_setup_model=False, **own)  # type: ignore[misc]
            self._adopt(resolve_settings({**saved, **changes}, changes))
            if self.env is None:
                vars(self).update({name: content[name] for name in (*SPACES, "n_envs")})
                self._require_room_for_lstm_states()
            else:
                require_spaces_of(content, self.env)
            construction.require_spaces(self.observation_space, self.action_space, self.policy_class)
            self._setup_lr_schedule()
            state_parts.require_network_of(self, state.get("policy"))  # before it takes memory
            with quickly_drawn(type(self), {"policy_class": self.policy_class, "policy_kwargs": self.policy_kwargs}):
                self._setup_model()
        if not self.variance_gradient_scaling and state.pop("vgs_state", None) is not None:
            warn_caller("vgs_state: the gradient statistics are dropped, as nothing is scaled by them", ResumeWarning)
        state = under_settings(self, state, settings, saved.get("optimizer_class", self.optimizer_class))
        self._restore(state, exact_match=True, expected=tuple(Scope), undoes=False)
        if state.get("normalizer_state") is not None:
            self.pending_state["normalizer_state"] = state["normalizer_state"]

    def _restore(self, states: Mapping[str, Any], *, exact_match: bool, **more: Any) -> None:
        """Restore parts of the training state, as :meth:`TrainingState.restore` does."""
        training_state = self._training_state()
        training_state.restore(states, exact_match=exact_match, **more)
        self._relink_scaler()
        if self._boundary is not None:
            collected = training_state.capture(Scope.COLLECTED)
            self._boundary.update({key: state for key, state in collected.items() if exact_match or key in states})

    def _require_room_for_lstm_states(self) -> None:
        """Raise StateError if the number of environments in a file asks for large LSTM states."""
        network = self.policy_kwargs
        size = 16 * self.n_envs * network.get("n_lstm_layers", 1) * network.get("lstm_hidden_size", 256)
        if size > LARGEST_LSTM_STATES:
            raise StateError(f"n_envs={self.n_envs} asks for {size >> 20} MiB of LSTM states; give the environments")


def own_names(algorithm: type[ConfiguredPPO]) -> list[str]:
    """Return the names that the constructors of an algorithm's class take and DistributionalPPO does not."""
    return [
        name for name in formats.constructor_names(algorithm) if name not in (*NO_SETTINGS, *PPOSettings.model_fields)
    ]


def decoded(content: Mapping[str, Any], objects: Mapping[str, object], path: Any) -> dict[str, Any]:
    """Return the content of a file with settings, spaces and policy class turned back from plain values.

    :raises CheckpointError: a value cannot be read, or the file is of another algorithm
    """
    with refusals_of(path, "the file"):
        if content["algorithm"] != formats.DEFAULT_ALGORITHM or "policy_class" not in content:
            raise StateError(f"is of {content['algorithm']!r:.80}; load it with rlcore.resume.load_exact")
        own: Any = content.get("own_settings", {})
        unknown = sorted(set(map(str, content["settings"])) - set(PPOSettings.model_fields))
        if unknown or not isinstance(own, dict):
            raise StateError(f"holds unknown settings {unknown or own!r:.200}")
        settings, own = (
            {name: codec.decode(value, name, objects) for name, value in each.items()}
            for each in (content["settings"], own)
        )
        policy_class = codec.decode(content["policy_class"], "policy_class", objects)
        spaces = formats.decode_spaces(content, objects)
        if not (isinstance(policy_class, type) and issubclass(policy_class, DistributionalRecurrentPolicy)):
            raise StateError("policy_class is not a DistributionalRecurrentPolicy")
    if lacking := sorted(set(PPOSettings.model_fields) - set(content["settings"])):
        warn_caller(f"{path_of(path)}: has no {lacking}; they take their defaults", ResumeWarning)
    settings["tensorboard_log"] = objects.get("tensorboard_log")  # a path of this machine, which no file says
    return {**content, **spaces, "policy_class": policy_class, "settings": settings, "own_settings": own}


def under_settings(
    model: ConfiguredPPO, state: Mapping[str, Any], ruling: Collection[str], saved_optimizer: object
) -> dict[str, Any]:
    """Return the state with the model's settings in place of its own, as far as they are named in ``ruling``.

    :param saved_optimizer: the ``optimizer_class`` under which ``state`` was saved
    :raises StateError: the optimizer's part does not fit, or values are in units of another return scale
    """
    fitted = dict(state)
    if "return_scale_state" in state and (state["return_scale_state"] is None) != (model.return_scale is None):
        raise StateError(f"the critics learnt under another return_scale than the model's, {model.return_scale!r}")
    scaler, penalty, optimizer = (fitted.get(key) for key in ("vgs_state", "kl_penalty_state", "policy.optimizer"))
    names = SCALER_SETTINGS.intersection(ruling) - {"vgs_estimator"}  # which says what the statistics are
    if names and isinstance(scaler, dict):
        fitted["vgs_state"] = {**scaler, **{name.removeprefix("vgs_"): getattr(model, name) for name in names}}
    if "kl_penalty_coef" in ruling and isinstance(penalty, dict):
        fitted["kl_penalty_state"] = {**penalty, "coefficient": model.kl_penalty_coef}
    if OPTIMIZER_SETTINGS.intersection(ruling) and isinstance(optimizer, dict):
        fitted["policy.optimizer"] = _refitted_optimizer(model, optimizer, saved_optimizer)
    return fitted


def _refitted_optimizer(model: ConfiguredPPO, saved: dict[Any, Any], saved_optimizer: object) -> dict[Any, Any]:
    """Return the saved moments under the model's own options; none where they are another optimizer's or incomplete."""
    optimizer, own = model.policy.optimizer, model.policy.optimizer.state_dict()
    other = find_optimizer(model.optimizer_class) is not find_optimizer(saved_optimizer)
    if other or missing_moments(saved.get("state"), optimizer):
        warn_caller(
            f"the saved moments{f' of {saved_optimizer!r}' if other else ''} are of no use to "
            f"{model.optimizer_class!r} under its present options: it starts fresh",
            ResumeWarning,
        )
        return {**own, "state": {}}
    fitted: dict[Any, Any] = fit_optimizer(saved, optimizer)
    for group, mine in zip(fitted["param_groups"], own["param_groups"], strict=True):
        group.update({name: mine[name] for name in {"lr", "seed"} & {"lr", *model.optimizer_kwargs}})
    return fitted


Model = TypeVar("Model", bound=SavablePPO)


def continued(path: str | Path | io.BytesIO, expected: Model) -> Model:
    """Return the model of a file in the environments of ``expected``, with its logger and what it shows of itself.

    A setting that no file holds (a lambda) is the one of ``expected``.

    :param path: the file, or a file object with its content
    :param expected: as it would be built now
    :raises SettingError: another number of environments, another normalisation or another setting, with both values
    :raises CheckpointError: if the file cannot be read as a model or does not fit the environments
    """
    content = read_model_file(path)
    saved, own = content["settings"], content.get("own_settings", {})
    normalized = content["state"].get("normalizer_state") is not None
    for name, before, asked in (
        ("environment.n_envs", content["n_envs"], expected.n_envs),
        ("environment.normalize", normalized, vec_state.capture_normalizer(expected.env) is not None),  # type: ignore[arg-type]
        *((name, before, expected.own_settings().get(name)) for name, before in own.items()),
        *(
            (name, saved.get(name, codec.encode(field.default, name)), getattr(expected, name))
            for name, field in PPOSettings.model_fields.items()
            if name not in SHOWN
        ),
    ):
        if not codec.same(before, codec.encode(asked, name)):
            raise SettingError(
                name,
                f"{name}={asked!r} is asked for, and what is to go on was trained with {_shown(before, name)}; give "
                "that again, or begin in another place",
            )
    if isinstance(path, io.BytesIO):
        path.seek(0)
    given = {name: getattr(expected, name) for name in (*PPOSettings.model_fields, *own)}
    model = type(expected).load(path, env=expected.get_env(), device=expected.device, custom_objects=given)
    if expected._custom_logger:
        model.set_logger(expected.logger)
    return model


def _shown(encoded: Any, name: str) -> str:
    try:
        return repr(codec.decode(encoded, name, {}))
    except CheckpointError:  # the file describes what it could not hold
        return repr(encoded)
