"""Trains DistributionalPPO as the trials of Ray Tune, so that Ray's schedulers can explore its hyperparameters.

Ray makes a trial that copies another with ``setup()`` of the explored config, or gives the config to a used actor with
``reset_config()``, and calls ``load_checkpoint()`` with the other trial's file last. A load that restores the settings
of the file, or only the groups of its optimizer, so replaces the explored values by those of the other trial, while
``trial.config`` and every log go on showing the explored ones (ray-project/ray #62173).
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from rlcore.checkpoint import codec
from rlcore.checkpoint.container import write_atomic
from rlcore.checkpoint.formats import read_model_file
from rlcore.errors import NonFiniteError, SettingError
from rlcore.pbt.exploit import OptimizerStrategy, apply_exploit, mean_episode_return
from rlcore.pbt.population import member_seed
from rlcore.pbt.turns import OwnGenerators, TurnwiseTraining
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.saving import continued
from rlcore.ppo.settings import LIVE, SHOWN, PPOSettings, find_optimizer, optimizer_options, whole_number
from rlcore.state.position import WINDOWS

try:
    from ray.tune import Trainable
except ImportError as error:
    raise ImportError("rlcore.tune needs Ray Tune, which cannot be imported: pip install 'rlverify[ray]'") from error

MODEL_FILE: Final = "model.zip"
TRIAL_FILE: Final = "trial.json"
"""The files of a checkpoint."""
OF_MAKE_MODEL: Final = set(PPOSettings.model_fields) - LIVE - {"seed", "policy_kwargs", "optimizer_class"}
"""Settings that only building a model can set, and that it has as they were given."""
COMPARED: Final = (LIVE & set(PPOSettings.model_fields)) - SHOWN
"""Settings that may differ between a file and the present config."""

Config: TypeAlias = dict[str, Any]
MakeTrialModel: TypeAlias = Callable[[Config, int], DistributionalPPO]
"""Builds a model, with environments of its own, from a trial's config and a seed."""
Mode: TypeAlias = Literal["max", "min"]

_logger = logging.getLogger("rlcore.tune")


@dataclass(frozen=True)
class TrainingPlan:
    """The parameters of :func:`trainable`."""

    make_model: MakeTrialModel
    total_timesteps: int
    updates_per_step: int
    performance: Callable[[DistributionalPPO], float]
    mode: Mode
    optimizer_exploit_strategy: OptimizerStrategy
    seed: int


class DistributionalPPOTrainable(Trainable):
    """One trial; :func:`trainable` makes a subclass that knows what to train.

    The model that ``make_model`` builds from the present config rules: whatever a checkpoint is loaded for, the
    settings of the file are not taken over.
    """

    plan: ClassVar[TrainingPlan]

    model: DistributionalPPO
    """What trains now; another object after a load."""
    _training: TurnwiseTraining | None = None

    def setup(self, config: Config) -> None:
        """Build the model of a new trial.

        :raises SettingError: if a hyperparameter in the config cannot be used, or was not
        """
        self._present = config
        # The end of an id counts the trials of an experiment; the rest differs in each experiment.
        number = zlib.crc32(self.trial_id.rpartition("_")[2].encode())
        self._build(member_seed(self.plan.seed, number))

    def reset_config(self, new_config: Config) -> bool:
        """Build the model of the trial that takes over this actor; nothing of the last trial stays.

        :raises SettingError: as :meth:`setup`
        """
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train for ``updates_per_step`` updates.

        :return: ``score``; ``timesteps_total``, environment steps; ``diverged``; ``effective``, see
            :func:`effective_hyperparameters`; and ``done``, after ``total_timesteps``
        """
        plan, score = self.plan, math.nan
        diverged = False
        with self._generators.in_place():
            try:
                self._entered().advance(plan.updates_per_step, {})
            except NonFiniteError as error:
                diverged = True
                _logger.warning("trial %s has diverged and ranks last: %s", self.trial_id, error)
            else:
                score = float(plan.performance(self.model))
        if math.isnan(score):
            score = -math.inf if plan.mode == "max" else math.inf
        return {
            "score": score,
            "timesteps_total": self.model.num_timesteps,
            "diverged": diverged,
            "effective": effective_hyperparameters(self.model, self._present),
            "done": self._is_done(),
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the whole model, and the trial that it belongs to.

        :raises CheckpointError: if a file cannot be written
        """
        folder = Path(checkpoint_dir)
        with self._generators.in_place():
            self.model.save(folder / MODEL_FILE)
        saved = {"trial_id": self.trial_id, "seed": self._seed}
        write_atomic(folder / TRIAL_FILE, json.dumps(saved).encode())

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a checkpoint, under the present config.

        A trial goes on from its own checkpoint as if it had not been interrupted. Of another trial it takes over what
        was learnt, as :func:`rlcore.apply_exploit` does, and the number of timesteps; its environments start from a
        reset, with a seed that no trial has used.

        :param checkpoint: the folder that :meth:`save_checkpoint` wrote
        :raises CheckpointError: if a file cannot be read
        :raises SettingError: if the trial's own checkpoint has a setting that cannot change, such as ``n_steps``
        :raises StateError: if what the other trial has learnt does not fit this model
        """
        path, trial = Path(checkpoint) / MODEL_FILE, Path(checkpoint) / TRIAL_FILE
        saved = json.loads(trial.read_bytes())
        content = read_model_file(path)
        self._training = None  # it trains the model of before
        if saved["trial_id"] == self.trial_id:
            self._rebuild(saved["seed"])
            self._continue(path, content)
        else:
            progress = content["state"].get("progress_state") or {}
            self._rebuild(member_seed(self._seed, int(progress.get("num_timesteps", 0))))
            self._take_over(content)

    def cleanup(self) -> None:
        """Close the environments."""
        env = self.model.get_env()
        if env is not None:
            env.close()

    def _build(self, seed: int) -> None:
        """Make the model under the present config, and apply its settings."""
        self._seed, self._generators = seed, OwnGenerators(seed)
        self._training = None
        with self._generators.in_place():
            self.model = self.plan.make_model(dict(self._present), seed)
            _require_built_with(self._present, self.model)
            set_hyperparameters(self.model, _settings_in(self._present, self.model))

    def _rebuild(self, seed: int) -> None:
        if seed != self._seed:
            self.cleanup()
            self._build(seed)

    def _entered(self) -> TurnwiseTraining:
        """The training of the model; entering resets environments, which must come after what a load restores."""
        if self._training is None:
            self._training = TurnwiseTraining(self.model, self.plan.total_timesteps, self.trial_name)
        return self._training

    def _continue(self, path: Path, content: Mapping[str, Any]) -> None:
        before, asked = _differing(content["settings"], self.model)
        with self._generators.in_place():
            set_hyperparameters(self.model, before)
            self.model = continued(path, self.model)
            set_hyperparameters(self.model, asked)

    def _take_over(self, content: Mapping[str, Any]) -> None:
        # What the other trial has adapted, such as the coefficient of the penalty, starts again where its setting was
        # explored; so the model has the settings of the file until they change.
        before, asked = _differing(content["settings"], self.model)
        state = content["state"]
        with self._generators.in_place():
            set_hyperparameters(self.model, before)
            if state.get("progress_state") is not None:
                progress = {**state["progress_state"], **dict.fromkeys(WINDOWS)}
                self.model._training_state().parts["progress_state"].restore(progress)
            strategy = self.plan.optimizer_exploit_strategy
            apply_exploit(self.model, state, asked, optimizer_exploit_strategy=strategy)

    def _is_done(self) -> bool:
        """Return whether the trial has trained to the end; rollouts that were lost count, so that it has one."""
        model, plan = self.model, self.plan
        ended: int = self.iteration
        tried = (ended + 1) * plan.updates_per_step * model.n_steps * model.n_envs
        return max(model.num_timesteps, tried) >= plan.total_timesteps


def trainable(
    make_model: MakeTrialModel,
    *,
    total_timesteps: int,
    updates_per_step: int = 1,
    performance: Callable[[DistributionalPPO], float] = mean_episode_return,
    mode: Mode = "max",
    optimizer_exploit_strategy: OptimizerStrategy = "reset",
    seed: int = 0,
) -> type[DistributionalPPOTrainable]:
    """Make the class that ``ray.tune.Tuner`` trains; its metric is ``score``.

    An entry of the config whose name is a setting that a live model can change (``learning_rate``, ``clip_range``, an
    option of the optimizer such as ``sigma``) is set on the model even if ``make_model`` ignores it. All others are for
    ``make_model`` to read; a setting that it ignores (``n_steps``) raises an error.

    Ray's PBT ranks no trial whose score is NaN: such a trial neither copies nor is copied, and so never recovers. So a
    trial that has diverged, and one whose performance is NaN because no episode has ended, scores infinitely bad, which
    ranks last.

    :param make_model: builds a model and its environments from a trial's config and a seed. Ray sends it to other
        processes
    :param total_timesteps: environment steps of a trial, at which it is done; schedules count by it
    :param updates_per_step: updates of one training iteration of Ray
    :param performance: the score of a model; by default the mean return of its last episodes
    :param mode: whether the largest or the smallest score is best; the same as in ``TuneConfig``
    :param optimizer_exploit_strategy: whether a trial that copies another starts a fresh optimizer (``"reset"``) or
        copies the moments (``"copy"``)
    :param seed: from which the seeds of the trials are derived
    :raises SettingError: if one of these cannot be used
    """
    strategies = get_args(OptimizerStrategy)
    known = {"mode": (mode, get_args(Mode)), "optimizer_exploit_strategy": (optimizer_exploit_strategy, strategies)}
    for name, (value, choices) in known.items():
        if value not in choices:
            raise SettingError(name, f"{name}={value!r} cannot be used; give one of {', '.join(choices)}")
    plan = TrainingPlan(
        make_model,
        whole_number("total_timesteps", total_timesteps),
        whole_number("updates_per_step", updates_per_step),
        performance,
        mode,
        optimizer_exploit_strategy,
        whole_number("seed", seed),
    )
    return type(DistributionalPPOTrainable.__name__, (DistributionalPPOTrainable,), {"plan": plan})


def effective_hyperparameters(model: DistributionalPPO, names: Collection[str] = ()) -> dict[str, Any]:
    """Read the values that train the model.

    :param names: further settings or options of the optimizer; those that the model does not have are left out
    :return: ``learning_rate`` of the optimizer's groups (that of the critics is ``critic_lr_multiplier`` times it),
        ``clip_range`` and ``ent_coef``, and the settings that were named; schedules at the present progress
    """
    remaining = model._current_progress_remaining
    group = next(each for each in model.policy.optimizer.param_groups if each.get("name") != "critic")
    found = {name: group[name] for name in names if name in group and name not in ("params", "name")}
    for name in PPOSettings.model_fields.keys() & set(names):
        value = getattr(model, name)
        found[name] = value(remaining) if callable(value) else value
    return found | {
        "learning_rate": group["lr"],
        "clip_range": model.clip_range(remaining),
        "ent_coef": model.entropy_schedule.coefficient(remaining),
    }


def _settings_in(config: Mapping[str, Any], model: DistributionalPPO) -> Config:
    """Return the entries of a config that a live model can change, or that are options of its optimizer."""
    known = {*LIVE, *optimizer_options(find_optimizer(model.optimizer_class))} - {"seed"}
    return {name: value for name, value in config.items() if name in known}


def _require_built_with(config: Mapping[str, Any], model: DistributionalPPO) -> None:
    """
    :raises SettingError: if the config has a setting that ``make_model`` has ignored, so that exploring it does nothing
    """
    for name in sorted(OF_MAKE_MODEL & config.keys()):
        if getattr(model, name) != config[name]:
            raise SettingError(
                name,
                f"{name}={config[name]!r} is in the config, and make_model built a model with "
                f"{getattr(model, name)!r}, which cannot change later; let make_model read config[{name!r}]",
            )


def _differing(saved: Mapping[str, Any], model: DistributionalPPO) -> tuple[Config, Config]:
    """Return the changeable settings that a file and a model have differently: the file's, and the model's.

    :raises CheckpointError: if such a setting of the file is one that no file holds
    """
    names = [
        name
        for name in sorted(COMPARED & saved.keys())
        if not codec.same(saved[name], codec.encode(getattr(model, name), name))
    ]
    return {name: codec.decode(saved[name], name, {}) for name in names}, {name: getattr(model, name) for name in names}
