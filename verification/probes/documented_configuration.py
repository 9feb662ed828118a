"""The configuration that document 001 recommends, read from the document itself."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcore import ConfigFileError, SettingError, build_model, load_config
from rlverify import Observation, probe
from verification.probes.cited import cited_text
from verification.probes.make import Make

BLOCK = "001:397-409"
AROUND = """\
total_timesteps: 48
environment: {id: CartPole-v1}
algorithm:
  n_steps: 24
  batch_size: 24
  n_epochs: 1
  policy_kwargs: {lstm_hidden_size: 16, net_arch: [16]}
"""
"""The other settings of a run, small so that it trains quickly."""
EXPECTED = {"lr": 3e-4, "sigma": 0.001, "adaptive_noise": True, "noise_beta": 0.999, "min_noise_std": 1e-6}


@probe("documented-configuration-builds-and-trains")
def documented_configuration_builds_and_trains(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Build and train a model from the block. Check the optimizer's groups and the scaler."""
    indented = "".join(f"  {line}\n" for line in cited_text(BLOCK).splitlines())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_text(AROUND + indented)
        try:
            model = build_model(load_config(path), seed=seed, device="cpu")
        except (SettingError, ConfigFileError) as error:
            named = "lr" if "'lr'" in str(error) else "another setting"
            refused = f"refused, error names {named}"
            return [Observation(symptom, "correct", refused, holds=False) for symptom in _found(None)]
        model.learn(48)
    return [
        Observation(symptom, "correct", "correct" if holds else "wrong", holds)
        for symptom, holds in _found(model).items()
    ]


def _found(model: Any) -> dict[str, bool]:
    """Return each symptom and whether it is as documented."""
    symptoms = (
        "optimizer options of the documented block, every parameter group",
        "gradient scaling settings of the documented block",
        "training with the documented block (finite parameters, 2 steps)",
    )
    if model is None:
        return dict.fromkeys(symptoms, False)
    groups = all({name: group[name] for name in EXPECTED} == EXPECTED for group in model.policy.optimizer.param_groups)
    settings = model.variance_gradient_scaler.settings
    scaler = (settings.enabled, settings.beta, settings.alpha, settings.warmup_steps) == (True, 0.99, 0.1, 100)
    finite = all(bool(parameter.isfinite().all()) for parameter in model.policy.parameters())
    return dict(zip(symptoms, (groups, scaler, finite and model.variance_gradient_scaler.step_count == 2), strict=True))
