"""The premises of the experiments behind the figures: arms that differ in one thing, and effects that would be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import DistributionalPPO
from rlcore.ppo.adaptive import Moments
from rlverify.project.content import open_project
from tests.support.training import differing
from verification.experiments import (
    exploit,
    noise,
    noise_conditions,
    normaliser,
    normaliser_conditions,
    recovery_conditions,
    returns,
    returns_conditions,
    stability,
    training,
    twins,
    twins_conditions,
)
from verification.experiments.episodes import Episodes, Listener, first_episodes
from verification.probes.make import Make

MAKE = Make()
PROJECT = open_project(Path(__file__).parents[2])
FIGURES = [claim for claim in PROJECT.claims if claim.figure is not None]
TINY: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 2}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four optimizer steps an update, in two environments; few updates."""
    monkeypatch.setattr(training, "N_ENVS", 2)
    monkeypatch.setattr(training, "SETTINGS", {**training.SETTINGS, **TINY, "vgs_warmup_steps": 4})
    monkeypatch.setattr(stability, "SETTINGS", {**stability.SETTINGS, **TINY})
    monkeypatch.setattr(stability, "WARM_UP", 4)
    for module in (stability, normaliser, normaliser_conditions, twins, twins_conditions, noise_conditions):
        monkeypatch.setattr(module, "UPDATES", 2)
    monkeypatch.setattr(noise_conditions, "UPDATES_TRAINED", 4)
    for module in (normaliser, twins):
        monkeypatch.setattr(module, "N_ENVS", 4)
    for name, value in {"UPDATES": 3, "STARTED": 1, "UPDATES_STILL": 3, "WARMED_IN": 1}.items():
        monkeypatch.setattr(returns, name, value)
    for name, value in {"UPDATES": 4, "STARTED": 1, "UPDATES_STILL": 4, "WARMED_IN": 2}.items():
        monkeypatch.setattr(returns_conditions, name, value)
    for module in (exploit, recovery_conditions):
        monkeypatch.setattr(module, "UPDATES_BEFORE", 2)
        monkeypatch.setattr(module, "UPDATES_AFTER", 5)
    monkeypatch.setattr(exploit, "UPDATES_WATCHED", 5)
    monkeypatch.setattr(recovery_conditions, "EARLY", 2)


def pair() -> tuple[DistributionalPPO, DistributionalPPO]:
    return training.trained(MAKE, 0, 2, **exploit.SOURCE), training.trained(MAKE, 1, 3, **exploit.MEMBER)


def exploited(member: DistributionalPPO, learnt: Any) -> DistributionalPPO:
    return training.after_exploit(MAKE, training.saved(member), 1, learnt, exploit.SOURCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({claim.experiment for claim in FIGURES}))
def test_an_experiment_measures_what_its_claims_name(name: str) -> None:
    measured = PROJECT.experiment(name)(MAKE, 0)
    claimed = {claim.figure.quantity for claim in FIGURES if claim.figure and claim.experiment == name}
    assert claimed <= set(measured)
    assert all(map(math.isfinite, measured.values()))


def test_every_experiment_has_a_claim() -> None:
    assert set(PROJECT.experiments) == {claim.experiment for claim in FIGURES}


class TestExploit:
    def test_the_arms_differ_in_the_statistics_of_the_scaler_alone(self) -> None:
        source, member = pair()
        models = [exploited(member, learnt) for learnt in exploit.with_statistics_and_without(source, member)]
        transferred, kept = (model.get_parameters() for model in models)
        paths = differing(transferred, kept)
        assert paths
        assert all(path.startswith("/vgs_state/") for path in paths)
        assert differing(transferred["policy"], source.get_parameters()["policy"]) == []
        assert differing(transferred["vgs_state"], source.get_parameters()["vgs_state"]) == []
        assert differing(kept["vgs_state"], member.get_parameters()["vgs_state"]) == []

    def test_the_same_arm_goes_on_alike(self) -> None:
        source, member = pair()
        (learnt, _) = exploit.with_statistics_and_without(source, member)
        models = [exploited(member, learnt) for _ in range(2)]
        went = [[training.update(model) for _ in range(2)] for model in models]
        assert went[0] == went[1]
        assert differing(models[0].get_parameters(), models[1].get_parameters()) == []
        assert models[0].num_timesteps == member.num_timesteps + 2 * 32

    def test_a_witness_with_the_statistics_that_train_says_what_the_scaler_does(self) -> None:
        source, member = pair()
        (learnt, _) = exploit.with_statistics_and_without(source, member)
        model = exploited(member, learnt)
        factors = exploit.watched(model, source)
        training.update(model)
        training.update(model)
        assert len(factors.transferred) == 8
        assert factors.kept == factors.transferred
        assert factors.fresh[:4] == [1.0] * 4
        assert min(factors.transferred) < 1.0

    @pytest.mark.parametrize(
        ("factors", "expected"),
        [
            ([0.5] * 20, 0),
            ([0.6] * 3 + [0.5] * 17, 3),
            ([0.5] * 3 + [0.6] + [0.51] * 16, 4),
            ([0.5] * 15 + [0.6] + [0.5] * 4, 20),
        ],
    )
    def test_settled_is_when_an_update_passes_near_the_reference(self, factors: Sequence[float], expected: int) -> None:
        assert exploit.settled(factors, [0.5] * 20, 0.05) == expected

    def test_a_return_is_steps_for_each_episode(self) -> None:
        model = training.trained(MAKE, 0, 1)
        length = training.update(model)
        assert length == 32 / float(model.rollout_buffer.episode_starts.sum())


class TestReturns:
    def test_without_lag_there_is_no_error_and_with_it_there_is(self) -> None:
        zero, lagged = (returns.lag_errors(MAKE, 0, rule) for rule in ("zero_lag", "snapshot"))
        assert zero == pytest.approx([0.0] * 4, abs=1e-3)
        assert min(lagged) > 1.0

    def test_a_scale_that_is_half_too_large_is_an_error_of_a_third(self) -> None:
        raw = torch.tensor([-2.0, 2.0]).double()
        assert returns.relative_error(raw, raw / 3.0, Moments(0.0, 2.0)) == pytest.approx(100.0 / 3.0)

    def test_a_centre_that_is_off_by_one_standard_deviation_is_an_error_of_100(self) -> None:
        raw = torch.tensor([-2.0, 2.0]).double()
        assert returns.relative_error(raw, (raw + 2.0) / 2.0, Moments(0.0, 2.0)) == pytest.approx(100.0)


class TestNormaliser:
    def test_the_same_statistics_lose_nothing_and_others_do(self) -> None:
        """With a seed under which the policy of two updates acts by what it observes; most do not yet."""
        source = training.trained(MAKE, 4, 2)

        def same(observations: Any) -> Any:
            return observations

        def inverted(observations: Any) -> Any:
            return -20.0 * observations

        def scaled(observations: Any) -> Any:
            return 20.0 * observations

        nothing = normaliser.compared(MAKE, 4, source, same, same)
        assert list(nothing.values()) == pytest.approx([0.0] * 4, abs=1e-6)
        lost = normaliser.compared(MAKE, 4, source, scaled, inverted)
        assert lost["decisions changed"] > 20.0
        assert abs(lost["value loss gained on the same observations"]) > 0.01
        assert lost["return lost"] != 0.0
        assert lost["value loss gained"] != lost["value loss gained on the same observations"]

    def test_the_source_is_heard_behind_its_own_statistics(self) -> None:
        models = [training.trained(MAKE, seed, 1, wrapper=normaliser.normalised) for seed in (0, 1)]
        heard = [normaliser.statistics_of(model)(torch.ones(1, 4).numpy()) for model in models]
        assert (heard[0] != heard[1]).any()


class TestEpisodes:
    def test_returns_are_discounted_to_the_end_of_their_episode(self) -> None:
        model = training.untrained(MAKE, 0, gamma=0.5)
        rewards, ends = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[False], [True], [True]])
        episodes = Episodes(model, torch.empty(0), torch.empty(0), rewards, ends, torch.ones(3, 1, dtype=torch.bool))
        assert episodes.returns().tolist() == [2.0, 2.0, 4.0]
        assert episodes.mean_return == 3.5

    def test_every_environment_plays_the_episodes_asked_for(self) -> None:
        model = training.untrained(MAKE, 0)
        episodes = first_episodes(MAKE.envs(0, n_envs=3), [Listener(model)], 2, 0)
        assert (episodes.ends & episodes.counts).sum(dim=0).tolist() == [2, 2, 2]
        assert bool(episodes.counts[0].all())

    def test_a_listener_hears_what_the_policy_says_in_a_rollout(self) -> None:
        model = training.trained(MAKE, 0, 1)
        episodes = first_episodes(MAKE.envs(0, n_envs=3), [Listener(model), Listener(model)], 1, 0)
        observations, states, starts = MAKE.envs(0, n_envs=3).reset(), Listener(model).silent(3), torch.ones(3)
        with torch.no_grad():
            values = model.policy.predict_values(torch.as_tensor(observations), states.vf, starts)
        assert episodes.values(0)[:3].tolist() == values.tolist()
        assert episodes.share_of_decisions_that_differ() == 0.0


class TestTwins:
    def test_values_raised_by_the_mean_return_are_overestimated_by_100_more(self) -> None:
        episodes = twins.played(MAKE, 0, training.trained(MAKE, 0, 1))
        values = episodes.values(0)
        raised = twins.overestimation(episodes, values + episodes.returns().mean())
        assert raised == pytest.approx(twins.overestimation(episodes, values) + 100.0, abs=1e-3)

    def test_the_policy_whose_states_are_valued_does_not_change(self) -> None:
        before = training.untrained(MAKE, 0, **twins.UNCHANGING).policy.state_dict()
        after = training.trained(MAKE, 0, 1, **twins.UNCHANGING).policy.state_dict()
        moved = {name for name in before if (after[name] - before[name]).abs().max() > 1e-6}
        assert moved
        assert all(name.startswith(("lstm_critic", "value_net")) for name in moved)

    def test_the_arms_see_the_same_and_get_the_smaller_or_the_first(self) -> None:
        smaller, first = (training.untrained(MAKE, 0, **twins.UNCHANGING) for _ in range(2))
        twins.take_the_first(first)
        for model in (smaller, first):
            model.set_random_seed(0)
            model.learn(32)
        one, other = smaller.rollout_buffer, first.rollout_buffer
        assert (one.observations == other.observations).all()
        assert (one.critic_values == other.critic_values).all()
        assert (one.values.flatten() == one.critic_values.min(axis=-1).flatten()).all()
        assert (other.values.flatten() == other.critic_values[..., 0].flatten()).all()
        assert (one.returns < other.returns).any()
        observations, states, starts = torch.ones(2, 4), Listener(first).silent(2), torch.ones(2)
        of_both = first.policy.values.mean(first.policy.predict_outputs(observations, states.vf, starts))
        last = first.policy.predict_values(observations, states.vf, starts)
        assert last.tolist() == of_both[:, 0].tolist() != of_both.amin(dim=-1).tolist()


class TestNoise:
    def test_halving_the_gradient_of_upgd_doubles_its_noise_to_signal(self) -> None:
        model = training.trained(MAKE, 0, 1)
        gradients = noise.gradients_of(model)
        assert len(gradients) == 4
        optimizers = dict(MAKE.optimizers)
        plain, halved = (
            noise.loudness(MAKE, model, gradients, optimizers["UPGD"], factor, adaptive=False) for factor in (1.0, 0.5)
        )
        assert halved == pytest.approx(2.0 * plain, rel=1e-5)


class TestStability:
    def test_a_scaler_without_strength_changes_nothing(self) -> None:
        without, idle, strong = (
            stability.step_lengths(stability.model_of(MAKE, 0, "adam", **scaling))
            for scaling in ({"variance_gradient_scaling": False}, {"vgs_alpha": 0.0}, {"vgs_alpha": 1e6})
        )
        assert len(without) == 4
        assert idle == without
        assert strong != without

    def test_unevenness_is_about_changes_and_not_about_size_or_its_growth(self) -> None:
        uneven = [1.0, math.e, 1.0, math.e]
        assert stability.unevenness(uneven) == pytest.approx(1.0)
        assert stability.unevenness([7.0 * each for each in uneven]) == pytest.approx(1.0)
        assert stability.unevenness([1.01**i for i in range(300)]) == pytest.approx(math.log(1.01))


@pytest.mark.parametrize("experiment", [twins_conditions.longer, twins_conditions.in_the_second_environment])
def test_twins_are_measured_after_as_many_updates_as_their_names_say(
    experiment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    played = twins_conditions.played

    def counted(make: Make, seed: int, model: DistributionalPPO) -> Any:
        measured.append(model.num_timesteps // (model.n_steps * model.n_envs))
        return played(make, seed, model)

    monkeypatch.setattr(twins_conditions, "played", counted)
    monkeypatch.setattr(twins_conditions, "estimates", shortened(twins_conditions.estimates))
    experiment(MAKE, 0)
    horizons = [1, 4, 5] if experiment is twins_conditions.longer else [2, 4]  # `tiny` makes 2 updates of UPDATES
    assert measured == [each for each in horizons for _ in ("smaller", "first")]


def shortened(estimates: Any) -> Any:
    """The estimates with 5 updates where 40 are asked for."""

    def short(make: Make, seed: int, lengths: Any) -> Any:
        return estimates(make, seed, {name: min(updates, 5) for name, updates in lengths.items()})

    return short
