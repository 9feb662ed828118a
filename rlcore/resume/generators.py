"""All random generators that training draws from: the global ones, and that of the action space."""

from __future__ import annotations

from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.state.generators import apply_generators, check_generators, generator_from_state, generator_state
from rlcore.state.schema import read_dict, read_record
from rlcore.types import StateDict


def with_action_space(model: BaseAlgorithm, global_generators: StateDict) -> StateDict:
    """Return the states of all generators; that of the action space is None if it has drawn nothing and has no seed.

    :param global_generators: of :func:`rlcore.state.generators.capture_generators`
    """
    generator = vars(model.action_space).get("_np_random")
    return {"global": global_generators, "action_space": None if generator is None else generator_state(generator)}


def restore_generators(model: BaseAlgorithm, state: StateDict) -> None:
    """Continue all generators where :func:`with_action_space` was called.

    :raises StateError: ``state`` is not a state of generators; nothing was changed
    """
    record = read_record(state, "generators", ("global", "action_space"))
    global_generators = read_dict(record["global"], "generators['global']")
    check_generators(global_generators)
    saved = record["action_space"]
    own = None if saved is None else generator_from_state(saved, "generators['action_space']")
    vars(model.action_space)["_np_random"] = own
    apply_generators(global_generators)
