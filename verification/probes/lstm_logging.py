"""What an update logs about the LSTM states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.logger import Logger
from torch import Tensor

from rlverify import Observation, probe
from verification.probes.make import Make


@probe("hidden-states-are-logged-layer-by-layer")
def hidden_states_are_logged_layer_by_layer(make: Make, seed: int) -> Sequence[Observation]:
    """Train LSTMs of one and of two layers for one update. Compare the log with the hidden states."""
    observations = []
    for layers in (1, 2):
        network = {"lstm_hidden_size": 16, "net_arch": [16], "n_lstm_layers": layers}
        model = make.model(seed, n_epochs=1, policy_kwargs=network)
        model.set_logger(Logger(None, []))
        model.learn(96, log_interval=1000)
        logged = {key: value for key, value in model.logger.name_to_value.items() if key.startswith("lstm/")}
        for who, (hidden, _) in (("actor", model._last_lstm_states.pi), ("critic", model._last_lstm_states.vf)):
            right = all(_as_described(logged, who, layer, hidden[layer]) for layer in range(layers))
            symptom = f"hidden-state statistics of the {who}, LSTM of depth {layers}"
            after = "logged" if right else "not logged" if not any(who in key for key in logged) else "logged wrongly"
            observations.append(Observation(symptom, "logged", after, holds=right))
        known = {f"lstm/{who}_hidden_layer{i}" for who in ("actor", "critic") for i in range(layers)}
        beyond = sorted({key.rpartition("_")[0] for key in logged} - known)
        text = ", ".join(beyond) or "none"
        symptom = f"logged layers that do not exist, LSTM of depth {layers}"
        observations.append(Observation(symptom, "none", text, holds=not beyond))
    return observations


def _as_described(logged: Mapping[str, Any], who: str, layer: int, hidden: Tensor) -> bool:
    numbers = hidden.double().numpy().ravel()
    expected = {"norm": np.sqrt((numbers**2).sum()), "mean": numbers.mean()}
    found = {name: logged.get(f"lstm/{who}_hidden_layer{layer}_{name}", np.nan) for name in expected}
    spread = logged.get(f"lstm/{who}_hidden_layer{layer}_std", np.nan)
    spreads = [numbers.std(ddof=ddof) for ddof in (0, 1)]  # the document's own divides by one less
    described = any(np.isclose(spread, each, rtol=1e-4) for each in spreads)
    return described and all(np.isclose(found[name], expected[name], rtol=1e-4, atol=1e-7) for name in expected)
