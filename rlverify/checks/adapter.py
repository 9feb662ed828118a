"""How the checks talk to an algorithm: an adapter, which a subject needs if it is none of a known library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rlverify.checks.trained import found_modules, found_optimizers

STEPS: Final = 64
"""Environment steps in which a model of an unknown library learns something, if the caller does not say."""


class NotSupportedError(Exception):
    """An adapter cannot do what a check needs, so that the check does not apply."""


class Adapter:
    """What the checks do with a model. Override what your code does otherwise; a plain training loop needs three.

    Every method gets the model that the factory made, or that `load` returned.
    """

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        """Train for ``steps`` environment steps more.

        :return: one value for each step that tells it apart from another, such as a digest of observation and action;
            may be empty. Checks compare them to find the first step at which two runs differ.
        """
        model.learn(steps)
        return ()

    def save(self, model: Any, folder: Path) -> None:  # noqa: ARG002
        """Write everything into an empty folder that is needed to go on later, in the way that users are told to."""
        raise NotSupportedError("the adapter has no save()")

    def load(self, folder: Path, fresh: Any) -> Any:  # noqa: ARG002
        """Read what `save` wrote, in the way that users are told to.

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
        """Environment steps in which the model is updated at least once."""
        return STEPS
