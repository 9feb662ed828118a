"""Twin critics train, on sequences of one length."""

from __future__ import annotations

from verification.probes.make import Make


def test_twin_critics_train_on_sequences_of_equal_length() -> None:
    model = Make().model(0, n_steps=1, batch_size=3, n_critics=2)
    model.learn(6)
    assert model.num_timesteps == 6
