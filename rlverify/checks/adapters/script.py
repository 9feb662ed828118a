"""A training script in the manner of CleanRL as a model, and its adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlverify.checks.adapters.adapter import NotSupportedError, TrainerAdapter


class Script:
    """What a script has in its variables, such as ``agent``, ``optimizer`` and ``envs``, as attributes.

    :param iteration: the body of the script's loop: called with this object, it collects and updates once
    :param steps: environment steps of an iteration
    :param save: called with this object and an empty folder, if the script saves
    :param load: called with this object and such a folder, if the script goes on from what it saved
    """

    def __init__(
        self,
        iteration: Callable[[Any], object],
        steps: int,
        *,
        save: Callable[[Any, Path], object] | None = None,
        load: Callable[[Any, Path], object] | None = None,
        **variables: Any,
    ) -> None:
        self.iteration, self.steps, self.save, self.load = iteration, steps, save, load
        vars(self).update(variables)


class ScriptAdapter(TrainerAdapter):
    """Every `Script`; the environment is what it calls ``envs`` or ``env``."""

    def learn(self, model: Script, steps: int) -> Sequence[Any]:
        """As many iterations as have the steps."""
        for _ in range(max(1, steps // model.steps)):
            model.iteration(model)
        return ()

    def save(self, model: Script, folder: Path) -> None:
        """The script's own function."""
        if model.save is None:
            raise NotSupportedError("the script has no save()")
        model.save(model, folder)

    def load(self, folder: Path, fresh: Script) -> Script:
        """The script's own function, for a fresh script."""
        if fresh.load is None:
            raise NotSupportedError("the script has no load()")
        fresh.load(fresh, folder)
        return fresh

    def steps(self, model: Script) -> int:
        """One iteration."""
        return model.steps

    def environment(self, model: Script) -> Any:
        """What the script calls ``envs`` or ``env``."""
        found = vars(model).get("envs", vars(model).get("env"))
        if found is None:
            raise NotSupportedError("the script has neither envs nor env")
        return found
