"""How the checks talk to an algorithm: an adapter. A subject needs one unless it is of a known library."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rlverify.checks.state.trained import found_modules, found_optimizers

STEPS: Final = 64
"""Environment steps in which a model of an unknown library learns something, if the caller does not say."""
UNKNOWN: Final = "rlverify_unknown"
"""A name that no setting has."""


class NotSupportedError(Exception):
    """An adapter cannot do what a check needs, so that the check does not apply."""


class Adapter:
    """What the checks do with a model. Override what your code does otherwise; a plain training loop needs three.

    Every method gets the model that the factory made, or that `load` returned. For a model of Stable-Baselines3, what a
    class does not override is done as `SB3Adapter` does it: ``modules``, ``optimizers`` and ``target_modules`` name all
    that can be reached, and can be overridden to name fewer.
    """

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        """Train for ``steps`` environment steps more.

        :return: one value for each step that tells it apart from another, such as a digest of observation and action;
            may be empty. Checks compare them to find the first step at which two runs differ.
        """
        model.learn(steps)
        return ()

    def save(self, model: Any, folder: Path) -> None:  # noqa: ARG002
        """Write what is needed to continue later into an empty folder, as the documentation of the library says."""
        raise NotSupportedError("the adapter has no save()")

    def load(self, folder: Path, fresh: Any) -> Any:  # noqa: ARG002
        """Read what `save` wrote, as the documentation of the library says.

        :param fresh: a model that the factory has just made, for its environment and settings
        :return: the model that goes on; can be ``fresh`` itself
        """
        raise NotSupportedError("the adapter has no load()")

    def get_parameters(self, model: Any) -> Any:  # noqa: ARG002
        """What an exploit copies from one model to another."""
        raise NotSupportedError("the adapter has no get_parameters()")

    def set_parameters(self, model: Any, parameters: Any) -> None:  # noqa: ARG002
        """Give a model what `get_parameters` returned of another."""
        raise NotSupportedError("the adapter has no set_parameters()")

    def act(self, model: Any) -> Any:  # noqa: ARG002
        """Use the model without training it, such as one deterministic action for a fixed observation."""
        raise NotSupportedError("the adapter has no act()")

    def set_learning_rate(self, model: Any, value: float) -> None:  # noqa: ARG002
        """Set the learning rate of all optimizers for the next update."""
        raise NotSupportedError("the adapter has no set_learning_rate()")

    def modules(self, model: Any) -> Sequence[Any]:
        """The modules of torch that hold what is trained; by default all that can be reached."""
        return found_modules(model)

    def target_modules(self, model: Any) -> Sequence[Any]:  # noqa: ARG002
        """Modules that are copies of others and that no optimizer trains, such as target networks."""
        return ()

    def optimizers(self, model: Any) -> Sequence[Any]:
        """The optimizers of torch; by default all that can be reached."""
        return found_optimizers(model)

    def steps(self, model: Any) -> int:  # noqa: ARG002
        """Environment steps in which the model is updated at least once; whole rollouts, if `learn` collects such."""
        return STEPS

    def steps_after(self, model: Any) -> int:
        """Environment steps in which a model that was trained for `steps` is updated again; by default as many."""
        return self.steps(model)

    def environment(self, model: Any) -> Any:  # noqa: ARG002
        """The environment that the model trains in: of Gymnasium, or a vector of environments of SB3."""
        raise NotSupportedError("the adapter has no environment()")

    def with_settings(self, model: Any, **settings: Any) -> Any:  # noqa: ARG002
        """A model that is made as this one was, with other arguments of the constructor."""
        raise NotSupportedError("the adapter has no with_settings()")

    def library_twin(self, model: Any) -> Any:  # noqa: ARG002
        """A model of the library's own class with the same arguments; the model itself if it has no class of yours."""
        raise NotSupportedError("the adapter has no library_twin()")

    def smaller(self, model: Any) -> Mapping[str, Any]:  # noqa: ARG002
        """Arguments for `with_settings` with which the model trains in less time, and otherwise as it did.

        Such as the length of a rollout, sizes of batches and buffers, epochs, and steps before learning starts.
        """
        return {}

    def unknown_settings(self, model: Any) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002
        """Arguments for `with_settings` that hold a name that does not exist, by the place of that name."""
        return {UNKNOWN: {UNKNOWN: 1}}

    def mutable_settings(self, model: Any) -> Mapping[str, Any]:  # noqa: ARG002
        """Arguments for `with_settings` that a constructor could change, such as a new dictionary."""
        raise NotSupportedError("the adapter has no mutable_settings()")

    def one_sample_settings(self, model: Any) -> Mapping[str, Any]:  # noqa: ARG002
        """Arguments for `with_settings` with which a minibatch has one sample."""
        raise NotSupportedError("the adapter has no one_sample_settings()")

    def recurrent_outputs(self, model: Any, observations: Any, episode_starts: Any) -> Any:  # noqa: ARG002
        """What the networks give for a sequence of observations, beginning with an empty state.

        :param observations: samples of the observation space, by step and environment; of a dictionary space, a
            dictionary of such arrays
        :param episode_starts: booleans by step and environment; where one is true, the state is forgotten before the
            observation of that step
        :return: an array whose first two dimensions are step and environment
        """
        raise NotSupportedError("the adapter has no recurrent_outputs()")

    def rollout(self, model: Any) -> None:  # noqa: ARG002
        """Collect what one update needs, without updating."""
        raise NotSupportedError("the adapter has no rollout()")

    def log_probs(self, model: Any) -> tuple[Any, Any]:  # noqa: ARG002
        """The log probabilities that the last rollout stored, and those that training computes for the same samples."""
        raise NotSupportedError("the adapter has no log_probs()")

    def advantages(self, model: Any) -> tuple[Any, Any, Any]:  # noqa: ARG002
        """Returns, values and advantages of the last rollout, in one order."""
        raise NotSupportedError("the adapter has no advantages()")

    def advantage_inputs(self, model: Any) -> Mapping[str, Any]:  # noqa: ARG002
        """Collect a rollout, and give its advantages with what they were computed from.

        :return: arrays by step and environment as ``advantages``, ``rewards``, ``values`` and ``episode_starts``; by
            environment as ``last_values`` and ``last_episode_starts``, which follow the last step; and the numbers
            ``gamma`` and ``gae_lambda``
        """
        raise NotSupportedError("the adapter has no advantage_inputs()")

    def transitions(self, model: Any) -> Sequence[Any]:  # noqa: ARG002
        """Collect a rollout, and give the rows of one environment in it that training uses.

        :return: observation, action, reward, whether the episode ended, and the observation after the action for each;
            at the end of an episode, that is the last one of this episode
        """
        raise NotSupportedError("the adapter has no transitions()")

    def callbacks(self, model: Any) -> Sequence[Any]:  # noqa: ARG002
        """What trains along with the model and has a state, such as a callback that keeps the best return."""
        raise NotSupportedError("the adapter has no callbacks()")

    def normalizer_state(self, model: Any) -> Mapping[str, Any]:  # noqa: ARG002
        """The statistics that observations and rewards are normalised with, by name: the arrays themselves."""
        raise NotSupportedError("the adapter has no normalizer_state()")

    def normalized(self, model: Any, observation: Any) -> Any:  # noqa: ARG002
        """One raw observation as the policy sees it, without a change of the statistics."""
        raise NotSupportedError("the adapter has no normalized()")


LIBRARIES: Final = {
    "stable_baselines3.common.base_class.BaseAlgorithm": ("sb3", "SB3Adapter"),
    "tianshou.trainer.Trainer": ("tianshou", "TianshouAdapter"),
    "skrl.trainers.torch.base.Trainer": ("skrl", "SkrlAdapter"),
    "torchrl.trainers.trainers.Trainer": ("torchrl", "TorchRLAdapter"),
    "rsl_rl.runners.on_policy_runner.OnPolicyRunner": ("rsl_rl", "RslRlAdapter"),
    "rlverify.checks.adapters.script.Script": ("script", "ScriptAdapter"),
}
"""The base classes of known libraries, with the module of this package and the class that talk to them."""


def adapter_name(model: Any) -> str:
    """``sb3`` for an algorithm of Stable-Baselines3 or sb3-contrib, a name for each other library, or ``plain``."""
    bases = [f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__]
    return next((LIBRARIES[base][0] for base in bases if base in LIBRARIES), "plain")


def adapter_named(name: str, own: Adapter | None = None) -> Adapter:
    """The adapter of a name that `adapter_name` gave.

    :param own: the caller's: of a known library, what its class does not override is done as for that library
    """
    if name == "plain":
        return own or Adapter()
    module = importlib.import_module(f"rlverify.checks.adapters.{name}")
    kind: type[Adapter] = getattr(module, dict(LIBRARIES.values())[name])
    if own is None or isinstance(own, kind):
        return own or kind()
    mixed = copy.copy(own)
    mixed.__class__ = type(type(own).__name__, (type(own), kind), {})
    return mixed


class TrainerAdapter(Adapter):
    """Copies states of modules and optimizers of torch, and sets rates in the optimizers."""

    def get_parameters(self, model: Any) -> Any:
        """Copies of ``state_dict()`` of all modules and optimizers."""
        return [copy.deepcopy(each.state_dict()) for each in self._stateful(model)]

    def set_parameters(self, model: Any, parameters: Any) -> None:
        """``load_state_dict()`` of all modules and optimizers, with copies."""
        for each, state in zip(self._stateful(model), parameters, strict=True):
            each.load_state_dict(copy.deepcopy(state))

    def set_learning_rate(self, model: Any, value: float) -> None:
        """Set the rate of every group of every optimizer."""
        for optimizer in self.optimizers(model):
            for group in optimizer.param_groups:
                group["lr"] = value

    def _stateful(self, model: Any) -> Sequence[Any]:
        return [*self.modules(model), *self.optimizers(model)]
