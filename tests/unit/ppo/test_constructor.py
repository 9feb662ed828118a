"""The constructor: typed keywords that agree with the table of settings, and settings that can be passed back in."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from rlcore import DistributionalPPO, PPOSettings, SettingError
from rlcore.ppo.construction import NO_SETTINGS
from tests.support.training import make_envs, make_model

SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "seed": 0}


def keywords() -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(DistributionalPPO).parameters
    return {name: each for name, each in parameters.items() if name not in (*NO_SETTINGS, "unknown")}


def test_the_constructor_takes_every_setting_with_its_default_and_nothing_else() -> None:
    defaults = {name: each.default for name, each in keywords().items()}
    assert defaults == {name: field.default for name, field in PPOSettings.model_fields.items()}
    assert list(defaults) == list(PPOSettings.model_fields)


def test_the_types_of_keywords_are_those_of_the_table() -> None:
    table = get_type_hints(PPOSettings)  # without the limits, which are pydantic's
    assert {name: each.annotation for name, each in keywords().items()} == {name: table[name] for name in keywords()}


def settings_of(model: DistributionalPPO) -> dict[str, Any]:
    return {**model.__getstate__()["settings"], "clip_range": model.clip_range(1.0)}


@pytest.mark.parametrize(
    "settings",
    [{}, {"variance_gradient_scaling": False}, {"value_distribution": "categorical", "v_min": 0.0, "v_max": 1.0}],
    ids=["defaults", "no scaling", "atoms"],
)
def test_the_table_can_be_passed_back_in(settings: dict[str, Any]) -> None:
    dumped = PPOSettings(**settings, **SMALL).model_dump()
    again = DistributionalPPO("MlpLstmPolicy", make_envs(), device="cpu", **dumped)
    direct = DistributionalPPO("MlpLstmPolicy", make_envs(), device="cpu", **settings, **SMALL)
    assert settings_of(again) == settings_of(direct)


class TestAttributes:
    """A setting that is assigned to later changes what trains, or raises."""

    @pytest.mark.parametrize(
        ("name", "value", "trains_with"),
        [
            ("vgs_alpha", 0.7, lambda model: model.variance_gradient_scaler.settings.alpha),
            ("gamma", 0.5, lambda model: model.rollout_buffer.gamma),
            ("gae_lambda", 0.5, lambda model: model.rollout_buffer.gae_lambda),
            ("huber_kappa", 0.5, lambda model: model.policy.values.huber_kappa),
            ("learning_rate", 0.125, lambda model: model.policy.optimizer.param_groups[0]["lr"]),
            ("clip_range", 0.125, lambda model: model.clip_range(1.0)),
            ("ent_coef", 0.25, lambda model: model.entropy_schedule.coefficient(1.0)),
            ("critic_lr_multiplier", 2.0, lambda model: model.policy.optimizer.param_groups[1]["lr"] / 0.005),
        ],
    )
    def test_what_trains_has_the_new_value_before_and_after_a_load(
        self, name: str, value: object, trains_with: Any, tmp_path: Path
    ) -> None:
        model = make_model(learning_rate=0.005)
        assert trains_with(model) != value
        setattr(model, name, value)
        assert trains_with(model) == pytest.approx(value)
        model.save(tmp_path / "model.zip")
        loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
        assert trains_with(loaded) == pytest.approx(trains_with(model))

    @pytest.mark.parametrize(("name", "value"), [("n_steps", 8), ("n_critics", 1), ("seed", 3), ("n_quantiles", 4)])
    def test_what_cannot_change_raises_and_stays(self, name: str, value: object) -> None:
        model = make_model()
        before = getattr(model, name)
        with pytest.raises(SettingError, match=f"{name}={value} cannot change in a model that exists"):
            setattr(model, name, value)
        assert getattr(model, name) == before
