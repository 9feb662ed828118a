"""What a population's folder says of it, checked before a run goes on from there."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlcore.checkpoint import load_container
from rlcore.errors import CheckpointError, SettingError
from rlcore.pbt.config import PBTConfig
from rlcore.pbt.member import PopulationMember
from rlcore.ppo.arguments import whole_number

FORMAT = "population_v1"
BRING_BACK = "bring it back from a copy, or begin anew in another folder"

FIELDS: dict[str, type] = {
    "format_version": str,
    "seed": int,
    "config": dict,
    "explored_step": int,
    "lineage_size": int,
    "scheduler": dict,
    "members": list,
}
MEMBER_FIELDS: dict[str, tuple[type, ...]] = {"file": (str, type(None)), "exploits": (int,), "vgs_transfers": (int,)}


def read_state(path: Path) -> dict[str, Any] | None:
    """The state that a run last committed, or None if none was begun.

    :raises CheckpointError: if the file is damaged or no state of a population
    """
    if not path.exists():
        return None
    state: Any = load_container(path, require_digest=True)
    if state.get("format_version") != FORMAT:
        raise CheckpointError(path, f"is no state of a population ({FORMAT}); give another folder")
    fits = set(state) == set(FIELDS) and all(isinstance(state[name], kind) for name, kind in FIELDS.items())
    if not fits or not all(map(_is_member, state["members"])):
        raise CheckpointError(path, "has other fields than a population's state; it is damaged or of another version")
    return dict(state)


def _is_member(state: object) -> bool:
    return (
        isinstance(state, dict)
        and set(state) == set(MEMBER_FIELDS)
        and all(isinstance(state[name], kinds) for name, kinds in MEMBER_FIELDS.items())
        and Path(state["file"] or "").name == (state["file"] or "")
    )


def agreed_seed(given: int | None, config: PBTConfig, state: Mapping[str, Any] | None) -> int:
    """The seed of a population: the one that is said, or that the folder was begun with, or a drawn one.

    :raises SettingError: if two of them differ
    """
    said = {
        "seed": None if given is None else whole_number("seed", given),
        "PBTConfig.seed": config.seed,
        "the folder's seed": None if state is None else state["seed"],
    }
    known = {name: value for name, value in said.items() if value is not None}
    if len(set(known.values())) > 1:
        named = " and ".join(f"{name}={value}" for name, value in known.items())
        raise SettingError("seed", f"{named} contradict each other; give one of them, or another folder")
    return next(iter(known.values())) if known else secrets.randbits(32)


def described(config: PBTConfig) -> dict[str, Any]:
    """What a run that goes on must have in common with the one before, in plain Python."""
    return config.model_dump(mode="json", exclude={"checkpoint_dir", "seed"})


def require_same_config(config: PBTConfig, state: Mapping[str, Any] | None, path: Path) -> None:
    """
    :raises SettingError: naming the first setting in which ``config`` differs from the state's
    """
    if state is None:
        return
    for name, value in described(config).items():
        if state["config"].get(name) != value:
            raise SettingError(
                f"PBTConfig[{name!r}]",
                f"{name}={value!r}, and the population in {path.parent} was begun with "
                f"{state['config'].get(name)!r}; give the same, or another folder",
            )


def require_checkpoints(members: Iterable[PopulationMember], state: Mapping[str, Any]) -> None:
    """Refuse a folder that has none of the checkpoints; one that is missing is remarked on when it is to be copied.

    :param members: as they are restored, with the paths that their parameters are to have now
    :raises CheckpointError: if none is there, so that nobody could copy what the run before would have let them
    """
    pairs = zip(members, state["scheduler"]["members"], strict=True)
    places = [(Path(member.checkpoint_path), saved) for member, saved in pairs if member.checkpoint_path is not None]
    if places and not any(path.exists() for path, _ in places):
        path, saved = places[0]
        raise CheckpointError(
            path,
            f"is missing, as is every other checkpoint of a member, and the population saved it as "
            f"{saved['checkpoint_path']}; give that checkpoint_dir, or {BRING_BACK}",
        )
