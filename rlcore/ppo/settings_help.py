"""What ``help(DistributionalPPO)`` says of its settings, made from their table."""

from __future__ import annotations

import inspect
from typing import Literal, TypeVar, get_args, get_origin

from rlcore.ppo.config import PPOSettings

_AlgorithmT = TypeVar("_AlgorithmT")


def with_settings(algorithm: type[_AlgorithmT]) -> type[_AlgorithmT]:
    """The class, its documentation and signature completed by every setting."""
    algorithm.__doc__ = f"{algorithm.__doc__}\n{_described()}\n"
    algorithm.__signature__ = _signature()  # type: ignore[attr-defined]
    return algorithm


def _signature() -> inspect.Signature:
    """The settings by name, with their defaults."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    settings = [
        inspect.Parameter(name, keyword, default=field.default) for name, field in PPOSettings.model_fields.items()
    ]
    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("policy", "env")]
    return inspect.Signature([*first, *settings, inspect.Parameter("device", keyword, default="auto")])


def _described() -> str:
    """One line a setting: its name, its default, its choices and what it is."""
    lines = [
        f"    {name} = {field.default!r}{_choices(field.annotation)}: {field.description}"
        for name, field in PPOSettings.model_fields.items()
    ]
    return "\n".join(["    Settings:", "", *lines])


def _choices(annotation: object) -> str:
    """What a setting of given words can be, in brackets; nothing of any other."""
    literals = [part for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal]
    return "".join(f" ({', '.join(map(repr, get_args(literal)))})" for literal in literals)
