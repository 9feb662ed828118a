"""A probe says no more than it has looked at: what it calls named is named, and what it prints is what was there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlcore.optim.upgd
import rlcore.pbt.scheduler
import rlcore.ppo.settings
from rlcore import DistributionalPPO, NonFiniteGradientError, ResumeWarning
from rlverify.project.content import open_project
from rlverify.records.measured import Observation
from verification.probes.make import Make

PROJECT = open_project(Path(__file__).parents[2])


def observe(probe: str, make: Make | None = None) -> dict[str, Observation]:
    observations = PROJECT.probe(probe)(make or Make(), 0)
    return {observation.symptom: observation for observation in observations}


def test_a_warning_that_names_no_file_is_not_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def vague(_: object) -> None:
        warnings.warn("something is missing", ResumeWarning, stacklevel=1)

    monkeypatch.setattr(rlcore.pbt.scheduler, "read_source", vague)
    seen = observe("missing-checkpoint-leaves-the-member")
    assert seen["exploit of a missing file"].holds
    assert (seen["warnings that name the missing file"].after, seen["warnings that name the missing file"].holds) == (
        "0",
        False,
    )


@pytest.mark.parametrize("variable", ["TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"])
def test_torch_s_environment_variables_change_no_answer_of_reading_files(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes = "a-version-checked-after-unpickling-stops-nothing", "torch-is-safe-unless-asked"
    plain = [observe(name) for name in probes]
    monkeypatch.setenv(variable, "1")
    assert [observe(name) for name in probes] == plain


def test_targets_are_looked_at_and_not_the_old_values_that_clipping_reads() -> None:
    class Clipped(DistributionalPPO):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings, clip_range_vf=0.2)

    seen = observe("a-rollout-is-trained-on-with-its-own-statistics", Make(algorithm=Clipped))
    assert all(each.holds for each in seen.values())


def test_an_error_that_names_another_tensor_is_not_one_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def vague(_: str, message: str) -> NonFiniteGradientError:
        return NonFiniteGradientError("some parameter", message)

    monkeypatch.setattr(rlcore.optim.upgd, "NonFiniteGradientError", vague)
    seen = observe("one-infinite-gradient-harms-nothing")
    assert seen["finite tensors after an infinite gradient, UPGD"].holds
    assert not seen["steps refused with an error that names the tensor, UPGD"].holds


@pytest.mark.parametrize("read_as", [True, False])
def test_a_flag_is_shown_as_the_model_has_it(read_as: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def any_text(value: object) -> object:
        return read_as if isinstance(value, str) else value

    monkeypatch.setattr(rlcore.ppo.settings, "flag_value", any_text)
    seen = observe("text-for-a-flag-is-refused")["normalize_advantage='0'"]
    assert (seen.after, seen.holds) == (f"read as {read_as}", False)


def test_training_that_fails_after_an_exploit_is_seen() -> None:
    class Failing(DistributionalPPO):
        def train(self) -> None:
            if self.num_timesteps > 48:
                raise RuntimeError
            super().train()

    seen = observe("environments-keep-apart-after-an-exploit", Make(algorithm=Failing))
    assert [symptom for symptom, each in seen.items() if not each.holds] == ["training after the exploit"]


def test_a_setting_that_is_lost_with_a_word_is_not_lost_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    load = DistributionalPPO.load.__func__  # type: ignore[attr-defined]

    def forgetful(words: str) -> Callable[..., DistributionalPPO]:
        def loading(cls: type[DistributionalPPO], *arguments: Any, **more: Any) -> DistributionalPPO:
            model: DistributionalPPO = load(cls, *arguments, **more)
            model.gamma = 0.5
            warnings.warn(words, ResumeWarning, stacklevel=2)
            return model

        return loading

    for words, lost in (("gamma starts from its default", "none"), ("all is well", "gamma")):
        monkeypatch.setattr(DistributionalPPO, "load", classmethod(forgetful(words)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResumeWarning)
            seen = observe("settings-survive-save-and-load")
        assert seen["settings that load() changes without a warning"].after == lost
