"""Public bug reports of the kind that a rule looks for. Each was read: `said` is what its authors report, no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class KnownBug:
    """A public report of one bug.

    :param fault: the fault that plants this bug, to see that the rule detects it; empty for a report of no rule
    """

    name: str
    url: str
    said: str
    fault: str = ""


def _issue(place: str, said: str, fault: str) -> KnownBug:
    """The report at a place such as ``owner/repository#1``."""
    repository, _, number = place.partition("#")
    name = f"{repository.partition('/')[2]} #{number}"
    return KnownBug(name, f"https://github.com/{repository}/issues/{number}", said, fault)


KNOWN_BUGS: Final[dict[str, tuple[KnownBug, ...]]] = {
    "deterministic": (
        _issue(
            "DLR-RM/stable-baselines3#292",
            "Training graphs differ from run to run although the global generators are seeded: "
            "the model needs a seed of its own.",
            "draw from a generator without a seed in learn()",
        ),
    ),
    "pieces_equal_whole": (
        _issue(
            "hill-a/stable-baselines#619",
            "Every call of learn() makes a new runner and so resets the environment, "
            "even with reset_num_timesteps=False.",
            "reset the environment at the start of learn()",
        ),
    ),
    "optimizers_hold_the_parameters": (
        _issue(
            "microsoft/nni#4521",
            "Layers are replaced while the optimizer keeps the parameters of the old ones, so none of them is updated.",
            "replace a parameter after learn()",
        ),
    ),
    "learning_rate_zero_freezes": (
        _issue(
            "DLR-RM/stable-baselines3#735",
            "get_parameters() shows the learning rate that set_parameters() was given, and training uses the old one.",
            "keep the old learning rate",
        ),
    ),
    "targets_follow": (
        _issue(
            "DLR-RM/stable-baselines3#996",
            "DQN does not copy the running statistics of batch normalisation to the target network; labelled a bug.",
            "leave one tensor of a target network as it was",
        ),
    ),
    "resume_is_exact": (
        _issue(
            "DLR-RM/stable-baselines3#1643",
            "After a load, PPO's environment restarts and the seed is set again, so training in two halves diverges "
            "from training at once.",
            "reset the environment in load()",
        ),
        _issue(
            "DLR-RM/stable-baselines3#1526",
            "Asks that save() and load() keep the states of the random generators, "
            "without which an interrupted run cannot be reproduced.",
            "seed the global generators in load()",
        ),
    ),
    "learning_rates_continue": (
        _issue(
            "leggedrobotics/rsl_rl#221",
            "load() restores the optimizer's learning rate, and the first update overwrites it with the initial one.",
            "set another learning rate at the first update after load()",
        ),
    ),
    "truncation_is_not_termination": (
        _issue(
            "vwxyzjn/cleanrl#457",
            "PPO joins truncations and terminations by or, so that no value is bootstrapped where time runs out.",
            "take truncation for termination",
        ),
        _issue(
            "DLR-RM/stable-baselines3#633",
            "Asks that on-policy algorithms add the value of the next state to the reward where an episode times out.",
            "take truncation for termination",
        ),
    ),
    "set_parameters_copies": (
        _issue(
            "pytorch/pytorch#196083",
            "Optimizer.load_state_dict() can leave two optimizers of one process with the same tensors of state, "
            "so a step of one changes the other.",
            "share the optimizer's state in set_parameters()",
        ),
    ),
}
"""By name of the rule. A rule without a report that we have read has no entry."""
