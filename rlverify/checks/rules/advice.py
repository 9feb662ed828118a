"""What is printed with a failure of a rule, and on the page of checks: a remedy, and public reports of such a bug."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REMEDIES: Final[dict[str, str]] = {
    "deterministic": "Seed the model, its environment and your own generators in the factory. Where all is seeded, "
    "look for sets that are iterated, threads, times that are used as values, and values of classes and modules that "
    "outlive a model.",
    "observing_changes_nothing": "Act in evaluation mode, on copies of what acting changes, and draw exploration from "
    "a generator of its own.",
    "pieces_equal_whole": "Set up in the constructor, not in learn(), what has to last longer than one call. "
    "If learn() rounds up to whole rollouts, let steps() of the adapter return such a number.",
    "environment_can_be_copied": "Give the class that the failure names a __deepcopy__ that copies its state.",
    "optimizers_hold_the_parameters": "Make the optimizer after the last change of the network, with all parameters.",
    "learning_rate_zero_freezes": "Read the learning rate of the parameter groups in every step.",
    "targets_start_equal": "Copy the whole state_dict() to the target, with its buffers, when both exist.",
    "targets_follow": "Copy the whole state_dict(), buffers included, to a network of its own at each update of it.",
    "set_parameters_copies": "Copy tensors in get_parameters() or set_parameters(): copy.deepcopy() of the whole.",
    "learning_rate_takes_effect": "Read the setting when it is used, or write it to all groups when it is set.",
    "unknown_settings_are_refused": "Raise an error for names that no code reads.",
    "arguments_are_left_alone": "Copy a dictionary before you change it: dict(kwargs).",
    "normalizer_is_finite_and_saved": "Save the statistics with the model, and load them before the first observation.",
    "statistics_follow_the_policy": "Make the statistics of the normaliser a part of get_parameters().",
    "explored_values_train": "Set the explored value after the state of the optimizer was restored, in every group.",
    "one_sample_minibatch": "Divide by a standard deviation only where there are two samples or more.",
    "returns_minus_values_are_advantages": "Compute returns and advantages from one and the same copy of the values.",
    "advantages_are_generalised": "Compare your function with the ten lines of generalised_advantages() in "
    "rlverify.checks.rules.numerics, the last step first.",
    "nan_observation_is_reported": "Check observations before the update: VecCheckNan(env, raise_exception=True).",
    "episode_start_forgets": "Set the recurrent state to zero where an episode starts, before the observation is used.",
    "environments_do_not_leak": "Look for a reshape that mixes the dimensions of environments and steps.",
    "ratio_is_one_on_a_fresh_rollout": "Compute the stored and the new log probability in the same way: with one mode "
    "of the network, one scale of actions and one observation.",
    "resume_is_exact": "Save and load what the failure names, and restore random generators last.",
    "load_returns_a_model": "Build in load() what training has added, before you load its state.",
    "save_load_save_is_a_fixed_point": "Store values as they are: round, scale and count nothing in save() or load().",
    "settings_survive": "Store the setting in the file, and pass it to the constructor in load().",
    "learning_rates_continue": "Restore the schedule's position along with the optimizer.",
    "modules_continue": "Save which parameters are frozen, and freeze them and register hooks again in load().",
    "truncation_is_not_termination": "Add gamma times the value of the last observation to the reward of a truncated "
    "step; in a replay buffer, store such a step as not ended.",
    "rows_are_transitions": "Leave out the step after an end, or make the vector with AutoresetMode.SAME_STEP.",
    "callbacks_continue": "Save the state of callbacks with the model.",
    "artefact_needs_no_unpickling": "Write tensors as safetensors or a state_dict, and settings as JSON.",
    "artefact_runs_nothing_when_read": "Read with torch.load(weights_only=True), or use a format other than pickle.",
}
"""What to do about a failure, by name of the rule."""


@dataclass(frozen=True)
class KnownBug:
    """A public report of one bug, which was read.

    :param said: what its authors report, and no more
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
