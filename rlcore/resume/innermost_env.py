"""An environment around another one that is not seen from outside, to answer for its state."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

_OWN = frozenset({"_inner", "observation_space", "action_space", "metadata", "render_mode", "spec"})
"""What the wrapper has itself."""


class InnermostEnv(gym.Env[Any, Any]):
    """Does everything as ``env`` does, of which :class:`rlcore.ResumableEnv` sees no layer."""

    _inner: gym.Env[Any, Any]

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._inner = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.render_mode, self.spec = env.metadata, env.render_mode, env.spec

    def __setattr__(self, name: str, value: Any) -> None:
        """What is not its own, such as ``difficulty`` or ``np_random``, is set in the environment."""
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._inner.unwrapped if hasattr(self._inner.unwrapped, name) else self._inner, name, value)

    @property
    def np_random(self) -> Any:
        """The generator of the environment."""
        return self._inner.unwrapped.np_random

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self._inner.unwrapped.np_random = value

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute of the environment."""
        return self._inner.set_wrapper_attr(name, value, force=force)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        return self._inner.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        return self._inner.step(action)

    def render(self) -> Any:
        """Render the environment."""
        return self._inner.render()

    def close(self) -> None:
        """Close the environment."""
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        """What this class does not have, such as ``action_masks``, is that of the environment."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._inner.get_wrapper_attr(name)
