"""Action masks in environments that are resumed exactly."""

from __future__ import annotations

from sb3_contrib.common.wrappers import ActionMasker

from rlcore.types import StateDict


class ResumableActionMasker(ActionMasker):
    """sb3-contrib's ActionMasker, which has no state of its own, for use inside of :class:`rlcore.ResumableEnv`.

    ``ResumableEnv(ResumableActionMasker(env, mask_function))``; the mask may depend on the environment's state only.
    """

    def get_state(self) -> StateDict:
        """Return nothing: the mask follows from the environment."""
        return {}

    def set_state(self, state: StateDict) -> None:
        """Do nothing."""
