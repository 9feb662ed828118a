"""Settings that are misspelt or in the wrong place, and strings where a bool is expected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlcore import DistributionalPPO, SettingError
from rlverify import Observation, probe
from verification.probes.make import SMALL_NETWORK, Make

WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "use_twin_critics=": ({"use_twin_critics": True}, "n_critics"),
    "vgs_enabled=": ({"vgs_enabled": True}, "variance_gradient_scaling"),
    "clip_rang=": ({"clip_rang": 0.1}, "clip_range"),
    "sigma= outside optimizer_kwargs": ({"sigma": 0.1}, "optimizer_kwargs"),
    "optimizer_kwargs['sgima']": ({"optimizer_kwargs": {"sgima": 0.1}}, "sigma"),
    "optimizer_kwargs['vgs_beta']": ({"optimizer_kwargs": {"vgs_beta": 0.9}}, "DistributionalPPO"),
    "policy_kwargs['lstm_size']": ({"policy_kwargs": {**SMALL_NETWORK, "lstm_size": 8}}, "lstm_hidden_size"),
    "policy_kwargs['optimizer_kwargs']['sgima']": (
        {"policy_kwargs": {**SMALL_NETWORK, "optimizer_kwargs": {"sgima": 0.1}}},
        "sigma",
    ),
    "policy_kwargs['lstm_kwargs']['hidden_size']": (
        {"policy_kwargs": {"net_arch": [16], "lstm_kwargs": {"hidden_size": 8}}},
        "lstm_hidden_size",
    ),
    "policy_kwargs['net_arch']['qf']": ({"policy_kwargs": {"net_arch": {"qf": [8]}}}, "pi, vf"),
}
"""By spelling: the settings, and what the error must name."""


@probe("unknown-settings-are-refused-by-name")
def unknown_settings_are_refused_by_name(make: Make, seed: int) -> Sequence[Observation]:
    """Pass settings with a wrong name or in a wrong place, at every level."""
    return [_refusal(make, seed, written) for written in WRITTEN]


def _refusal(make: Make, seed: int, written: str) -> Observation:
    settings, right = WRITTEN[written]
    symptom, expected = f"unknown setting {written}", f"refused, error names {right}"
    try:
        make.model(seed, **{name: _own_copy(value) for name, value in settings.items()})
    except TypeError as error:
        named = right in str(error)
        return Observation(symptom, expected, expected if named else f"TypeError: {error}", holds=named)
    return Observation(symptom, expected, "ignored without a warning", holds=False)


def _own_copy(value: Any) -> Any:
    """Copy nested dicts, so that one run cannot change the settings of the next."""
    return {key: _own_copy(part) for key, part in value.items()} if isinstance(value, dict) else value


TEXTS: dict[str, tuple[dict[str, Any], Callable[[DistributionalPPO], object]]] = {
    "variance_gradient_scaling='false'": (
        {"variance_gradient_scaling": "false"},
        lambda model: model.variance_gradient_scaling,
    ),
    "normalize_advantage='0'": ({"normalize_advantage": "0"}, lambda model: model.normalize_advantage),
    "policy_kwargs['ortho_init']='false'": (
        {"policy_kwargs": {**SMALL_NETWORK, "ortho_init": "false"}},
        lambda model: model.policy.ortho_init,
    ),
    "optimizer_kwargs['amsgrad']='false' with Adam": (
        {"optimizer_class": "adam", "optimizer_kwargs": {"amsgrad": "false"}},
        lambda model: model.policy.optimizer.defaults["amsgrad"],
    ),
}
"""By spelling: the settings, and how to read the flag from the model built with them."""


@probe("text-for-a-flag-is-refused")
def text_for_a_flag_is_refused(make: Make, seed: int) -> Sequence[Observation]:
    """Pass a string where a bool is expected, at every level with flags."""
    return [_given(make, seed, case) for case in TEXTS]


def _given(make: Make, seed: int, case: str) -> Observation:
    settings, flag = TEXTS[case]
    try:
        model = make.model(seed, **settings)
    except SettingError:
        return Observation(case, "refused", "refused", holds=True)
    return Observation(case, "refused", f"read as {bool(flag(model))}", holds=False)
