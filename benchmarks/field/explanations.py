"""What a finding of the field report means, for checks that failed somewhere: written by hand, shown only with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlverify.checks.rules.advice import KNOWN_BUGS, KnownBug


@dataclass(frozen=True)
class Explanation:
    """What is said about a check that failed.

    :param headline: what goes wrong, in a sentence
    :param cause: where in the library it comes from
    :param advice: what a user can do today
    :param known: public reports of this in the libraries of the report
    """

    headline: str
    cause: str = ""
    advice: str = ""
    known: tuple[KnownBug, ...] = ()


SB3_2281: Final = KnownBug(
    "stable-baselines3 #2281",
    "https://github.com/DLR-RM/stable-baselines3/issues/2281",
    "Loading a model, a replay buffer or the statistics of VecNormalize executes what the file names.",
)

EXPLANATIONS: Final = {
    "resume_is_exact": Explanation(
        "A run that was saved and resumed is not the run that was interrupted.",
        "Files hold no state of the environment and of no random generator. `load()` lets the environment start again, "
        "and seeds the generators as at the beginning, so that a resumed run draws its first random numbers again.",
        "Do not compare resumed runs with uninterrupted ones under one seed. To resume exactly, save what the list "
        "names as well, and restore the generators last; save_exact() of rlcore.resume does so for all ten.",
        KNOWN_BUGS["resume_is_exact"],
    ),
    "set_parameters_copies": Explanation(
        "After `b.set_parameters(a.get_parameters())`, training `a` changes the optimizer's state of `b`.",
        "torch's `Optimizer.load_state_dict()` keeps the tensors that it is given; `get_parameters()` does not copy.",
        "Hand over `copy.deepcopy(a.get_parameters())`.",
        KNOWN_BUGS["set_parameters_copies"],
    ),
    "one_sample_minibatch": Explanation(
        "A minibatch of one sample makes every parameter that it reaches NaN.",
        "Advantages are divided by their standard deviation, which is NaN for one sample. "
        "PPO of Stable-Baselines3 skips the division there.",
        "Choose sizes for which `n_steps * n_envs % batch_size` is not 1.",
        (
            KnownBug(
                "stable-baselines3 #325",
                "https://github.com/DLR-RM/stable-baselines3/issues/325",
                "The same in PPO, where it was corrected since.",
            ),
        ),
    ),
    "nan_observation_is_reported": Explanation(
        "An observation of NaN destroys the parameters, and `learn()` returns without an error.",
        "Nothing looks at an observation before the update. Algorithms that sample from a distribution stop there, as "
        "it refuses NaN; these do not sample from one.",
        "Wrap the environment: `VecCheckNan(env, raise_exception=True)`.",
    ),
    "unknown_settings_are_refused": Explanation(
        "A misspelt key of `net_arch` is accepted, and the network has no hidden layer.",
        'The dictionary is read with `get("pi", [])` and `get("vf", [])`.',
        "Print `model.policy` once after you changed `policy_kwargs`.",
    ),
    "arguments_are_left_alone": Explanation(
        "The constructor writes its own entries into the caller's `policy_kwargs`.",
        "The dictionary is kept without a copy, and defaults are added to it.",
        "Give each model a dictionary of its own.",
    ),
    "environment_can_be_copied": Explanation(
        "A copy of VecNormalize has no environment.",
        "It leaves its environment out when it is pickled, and `copy.deepcopy()` does the same.",
        "Copy the environment below it, and then the statistics.",
        (
            KnownBug(
                "stable-baselines #525",
                "https://github.com/hill-a/stable-baselines/pull/525",
                "Introduced it for files, where set_venv() is called afterwards.",
            ),
        ),
    ),
    "statistics_follow_the_policy": Explanation(
        "`get_parameters()` leaves the statistics of VecNormalize behind.",
        "They belong to the environment, and parameters are those of networks and optimizers.",
        "Copy `obs_rms` and `ret_rms` of the VecNormalize along with the parameters.",
    ),
    "artefact_needs_no_unpickling": Explanation(
        "Saved models, replay buffers and statistics can only be read by unpickling them.",
        "Classes, spaces and arrays are written with cloudpickle into the JSON file, buffers with pickle.",
        "Give models away as safetensors or a state_dict, with their settings as JSON.",
        (SB3_2281,),
    ),
    "artefact_runs_nothing_when_read": Explanation(
        "Reading a saved file imports and calls what the file names.",
        "Unpickling calls functions by name, and `load()` has no list of names that are allowed.",
        "Load only files whose authors you trust; `rlverify scan FILE` lists what a file calls, and "
        "`rlverify.scan.load_parameters_safely` reads the weights without unpickling.",
        (SB3_2281,),
    ),
    "learning_rate_zero_freezes": Explanation(
        "With a learning rate of 0, the policy still moves.",
    ),
    "pieces_equal_whole": Explanation(
        "Two calls of `learn()` train differently from one.",
        "Settings that were found to do this, by leaving each out: a schedule, also that of DQN's exploration, which "
        "runs over the steps of the present call; action noise for several environments, which starts again in each "
        "call; and `train_freq` in episodes, as a call can end in the middle of one.",
        "Ask for all steps in one call, or set the learning rate from a callback.",
        (
            KnownBug(
                "imitation #262",
                "https://github.com/HumanCompatibleAI/imitation/issues/262",
                "Training in many short calls goes through the whole schedule in each of them.",
            ),
        ),
    ),
    "truncation_is_not_termination": Explanation(
        "With `handle_timeout_termination=False`, a state at which time runs out is worth nothing.",
        "The buffer then stores the end of time as the end of the episode. `optimize_memory_usage=True` requires it.",
        "Keep the default, and save memory by a smaller buffer.",
        KNOWN_BUGS.get("truncation_is_not_termination", ()),
    ),
}

OF_OPTIMIZERS: Final = {
    "load_state_dict_copies": Explanation(
        "After `b.load_state_dict(a.state_dict())`, steps of `b` change the state of `a`.",
        "`load_state_dict()` keeps the tensors that it is given where dtype and device fit. So it is the "
        "cause of `set_parameters_copies`.",
        "Hand over `copy.deepcopy(a.state_dict())`.",
        KNOWN_BUGS["set_parameters_copies"],
    ),
    "learning_rate_zero_freezes": Explanation(
        "With a learning rate of 0, parameters still move.",
        "ASGD computes the size of a step at the end of the step before, so a new learning rate takes effect one step "
        "late. In Rprop the learning rate is the size of the first step alone.",
        "Freeze parameters with `requires_grad_(False)`, or do not call `step()`.",
    ),
    "deepcopy_continues": Explanation(
        "A deep copy cannot make a step.",
        "LBFGS keeps its parameters in an attribute that copies and pickles leave out.",
        "Make a new optimizer, and load the state_dict of the old one.",
    ),
    "non_finite_gradients_do_not_stay": Explanation(
        "One gradient of NaN or infinity makes parameters NaN for good, without an error.",
        advice="Call `clip_grad_norm_(parameters, limit, error_if_nonfinite=True)` before the step.",
    ),
    "huge_gradients_stay_finite": Explanation(
        "The square of a gradient above about 1e19 is infinite in float32, and the parameter stops for good.",
        advice="Clip gradients.",
    ),
    "half_precision_stays_finite": Explanation(
        "With parameters in half precision, a gradient of 0, or a small one, gives NaN or infinity.",
        "An `eps` of 1e-8 is 0 in float16. LBFGS has no `eps`; there the cause is another one.",
        "Keep the parameters in float32, as mixed precision does, or choose an `eps` of 1e-4.",
    ),
}
"""As `EXPLANATIONS`, for the checks of optimizers."""

BY_DESIGN: Final = {
    ("TRPO", "learning_rate_zero_freezes"): "the learning rate is that of the value function; the policy moves by the "
    "trust region, as TRPO's documentation says",
    ("DQN", "truncation_is_not_termination"): "`handle_timeout_termination=False` asks for it",
    ("Rprop", "learning_rate_zero_freezes"): "the learning rate is the size of the first step alone",
}
"""Failures that the documentation of a library announces, by algorithm and check."""
