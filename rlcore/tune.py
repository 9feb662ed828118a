"""Trains DistributionalPPO as the trials of Ray Tune, so that Ray's schedulers can explore its hyperparameters.

Ray gives a trial that copies another the explored config first, and the other trial's file last. A load that restores
the settings of the file would so replace the explored values, while every log shows them (ray-project/ray #62173).
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from rlcore.checkpoint import codec
from rlcore.checkpoint.container import write_atomic
from rlcore.checkpoint.formats import read_model_file
from rlcore.errors import SettingError
from rlcore.pbt.population import member_seed
from rlcore.pbt.turns import OptimizerStrategy, OwnGenerators, TurnwiseTraining, apply_exploit, mean_episode_return
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.saving import continued
from rlcore.ppo.settings import LIVE, SHOWN, PPOSettings, find_optimizer, optimizer_options
from rlcore.state.progress import WINDOWS

try:
    from ray.tune import Trainable
except ImportError as error:
    raise ImportError("rlcore.tune needs Ray Tune, which cannot be imported: pip install 'rlverify[ray]'") from error

MODEL_FILE: Final = "model.zip"
TRIAL_FILE: Final = "trial.json"
OF_MAKE_MODEL: Final = set(PPOSettings.model_fields) - LIVE - {"seed", "policy_kwargs", "optimizer_class"}
"""Settings that only building a model can set, and that it has as they were given."""
COMPARED: Final = (LIVE & set(PPOSettings.model_fields)) - SHOWN
"""Settings that may differ between a file and the present config."""

Config: TypeAlias = dict[str, Any]
MakeTrialModel: TypeAlias = Callable[[Config, int], DistributionalPPO]
"""Builds a model, with environments of its own, from a trial's config and a seed."""

_logger = logging.getLogger("rlcore.tune")


class DistributionalPPOTrainable(Trainable):
    """One trial; :func:`trainable` makes a subclass that knows what to train.

    :ivar plan: the parameters of :func:`trainable`, and ``worst``, the score of a trial that has diverged
    :ivar model: what trains now, under the settings of the present config; another object after a load
    """

    plan: Mapping[str, Any]
    model: DistributionalPPO
    _training: TurnwiseTraining | None = None

    def setup(self, config: Config) -> None:
        """Build the model of a new trial; raise SettingError if a hyperparameter cannot be used, or was not."""
        self._present = config
        # The end of an id counts the trials of an experiment; the rest differs in each experiment.
        number = zlib.crc32(self.trial_id.rpartition("_")[2].encode())
        self._build(member_seed(self.plan["seed"], number))

    def reset_config(self, new_config: Config) -> bool:
        """Build the model of the trial that takes over this actor; nothing of the last trial stays."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train for ``updates_per_step`` updates.

        :return: ``score``, ``timesteps_total``, ``diverged``, ``effective``, and ``done`` after ``total_timesteps``
        """
        plan = self.plan
        with self._generators.in_place():
            if self._training is None:  # which resets environments, so after what a load restores
                self._training = TurnwiseTraining(self.model, plan["total_timesteps"], self.trial_name)
            score, diverged = self._training.turn(plan["updates_per_step"], {}, plan["performance"])
        if diverged is not None:
            _logger.warning("trial %s has diverged and ranks last: %s", self.trial_id, diverged)
        # Rollouts that were lost count, so that such a trial has an end.
        model, tried = self.model, (self.iteration + 1) * plan["updates_per_step"]
        steps = max(model.num_timesteps, tried * model.n_steps * model.n_envs)
        return {
            "score": plan["worst"] if math.isnan(score) else score,
            "timesteps_total": model.num_timesteps,
            "diverged": diverged is not None,
            "effective": effective_hyperparameters(model, self._present),
            "done": steps >= plan["total_timesteps"],
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the whole model, and the trial that it belongs to."""
        folder = Path(checkpoint_dir)
        with self._generators.in_place():
            self.model.save(folder / MODEL_FILE)
        write_atomic(folder / TRIAL_FILE, json.dumps({"trial_id": self.trial_id, "seed": self._seed}).encode())

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from the folder that :meth:`save_checkpoint` wrote, under the present config.

        A trial goes on from its own checkpoint as if it had not been interrupted. Of another trial it takes over what
        was learnt, as :func:`rlcore.apply_exploit` does, and the number of timesteps; its environments start from a
        reset, with a seed that no trial has used.

        :raises CheckpointError: if the model's file cannot be read
        :raises SettingError: if the trial's own checkpoint has a setting that cannot change, such as ``n_steps``
        :raises StateError: if what the other trial has learnt does not fit this model
        """
        path = Path(checkpoint) / MODEL_FILE
        saved, content = json.loads((Path(checkpoint) / TRIAL_FILE).read_bytes()), read_model_file(path)
        is_own, state = saved["trial_id"] == self.trial_id, content["state"]
        progress = state.get("progress_state") or {}
        seed = saved["seed"] if is_own else member_seed(self._seed, int(progress.get("num_timesteps", 0)))
        self._training = None  # it trains the model of before
        if seed != self._seed:
            self.cleanup()
            self._build(seed)
        # What was adapted, such as the coefficient of the penalty, starts again where its setting was explored; so the
        # model has the settings of the file until they change.
        before, asked = _differing(content["settings"], self.model)
        with self._generators.in_place():
            set_hyperparameters(self.model, before)
            if is_own:
                self.model = continued(path, self.model)
                set_hyperparameters(self.model, asked)
                return
            if progress:
                restored = {**progress, **dict.fromkeys(WINDOWS)}
                self.model._training_state().parts["progress_state"].restore(restored)
            strategy = self.plan["optimizer_exploit_strategy"]
            apply_exploit(self.model, state, asked, optimizer_exploit_strategy=strategy)

    def cleanup(self) -> None:
        """Close the environments."""
        env = self.model.get_env()
        if env is not None:
            env.close()

    def _build(self, seed: int) -> None:
        """Make the model under the present config, and apply its settings."""
        self._seed, self._generators, self._training = seed, OwnGenerators(seed), None
        config = self._present
        with self._generators.in_place():
            model = self.model = self.plan["make_model"](dict(config), seed)
            for name in sorted(OF_MAKE_MODEL & config.keys()):
                if getattr(model, name) != config[name]:
                    words = f"{name}={config[name]!r} has no effect; let make_model read config[{name!r}]"
                    raise SettingError(name, words)
            known = {*LIVE, *optimizer_options(find_optimizer(model.optimizer_class))} - {"seed"}
            set_hyperparameters(model, {name: value for name, value in config.items() if name in known})


def trainable(
    make_model: MakeTrialModel,
    *,
    total_timesteps: int,
    updates_per_step: int = 1,
    performance: Callable[[DistributionalPPO], float] = mean_episode_return,
    mode: Literal["max", "min"] = "max",
    optimizer_exploit_strategy: OptimizerStrategy = "reset",
    seed: int = 0,
) -> type[DistributionalPPOTrainable]:
    """Make the class that ``ray.tune.Tuner`` trains; its metric is ``score``.

    Entries of the config that a live model can change (``learning_rate``, an option of the optimizer such as ``sigma``)
    are set on the model. All others are for ``make_model`` to read; a setting that it ignores raises SettingError.

    Ray's PBT lets no trial copy whose score is NaN. So a trial that has diverged, and one whose performance is NaN
    because no episode has ended, scores infinitely bad.

    :param make_model: builds a model and its environments from a trial's config and a seed. Ray sends it to other
        processes
    :param total_timesteps: environment steps of a trial, at which it is done; schedules count by it
    :param updates_per_step: updates of one training iteration of Ray
    :param performance: the score of a model; by default the mean return of its last episodes
    :param mode: whether the largest or the smallest score is best; the same as in ``TuneConfig``
    :param optimizer_exploit_strategy: as of :func:`rlcore.apply_exploit`
    :param seed: from which the seeds of the trials are derived
    """
    plan = {
        "make_model": make_model,
        "total_timesteps": total_timesteps,
        "updates_per_step": updates_per_step,
        "performance": performance,
        "worst": {"max": -math.inf, "min": math.inf}[mode],
        "optimizer_exploit_strategy": optimizer_exploit_strategy,
        "seed": seed,
    }
    return type(DistributionalPPOTrainable.__name__, (DistributionalPPOTrainable,), {"plan": plan})


def effective_hyperparameters(model: DistributionalPPO, names: Collection[str] = ()) -> dict[str, Any]:
    """Read the values that train the model, of schedules at the present progress.

    :param names: further settings or options of the optimizer; those that the model does not have are left out
    :return: the settings that were named, ``clip_range``, ``ent_coef``, and ``learning_rate`` (of the actor)
    """
    remaining = model._current_progress_remaining
    group = next(each for each in model.policy.optimizer.param_groups if each.get("name") != "critic")
    found = {name: group[name] for name in names if name in group and name not in ("params", "name")}
    for name in PPOSettings.model_fields.keys() & set(names):
        value = getattr(model, name)
        found[name] = value(remaining) if callable(value) else value
    coefficient = model.entropy_schedule.coefficient(remaining)
    return found | {"learning_rate": group["lr"], "clip_range": model.clip_range(remaining), "ent_coef": coefficient}


def _differing(saved: Mapping[str, Any], model: DistributionalPPO) -> tuple[Config, Config]:
    """Return the changeable settings that a file and a model have differently: the file's, and the model's."""
    names = sorted(COMPARED & saved.keys())
    names = [name for name in names if not codec.same(saved[name], codec.encode(getattr(model, name), name))]
    return {name: codec.decode(saved[name], name, {}) for name in names}, {name: getattr(model, name) for name in names}
