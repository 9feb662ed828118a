"""UPGD, variance gradient scaling, twin critics and population-based training together: the 24 tests that document 001
lists, under its names, on models that train."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.wrappers import TransformReward
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

from rlcore import (
    UPGD,
    AdaptiveUPGD,
    DistributionalPPO,
    NonFiniteGradientError,
    PopulationMember,
    VarianceGradientScaler,
    apply_exploit,
)
from rlcore.checkpoint.formats import FORMAT_V2
from rlcore.optim.upgd_step import noise_to_signal
from tests.support.gradients import gradient_of, watched
from tests.support.members import EXPLORED, exploit, pair, population_of_two, report
from tests.support.schedulers import make_scheduler
from tests.support.steps import TINY, all_finite, fill, logged, memory_of, scaler_of, tiny, train, unmoved, weights_of
from tests.support.training import differing, make_envs, make_model, tensors_in

BOTH = (UPGD, AdaptiveUPGD)
CRITICS = "value_net.heads"


class TestUPGDWithVGS:
    def test_upgd_vgs_basic_integration(self) -> None:
        model = tiny(n_epochs=4)
        before = weights_of(model)
        with watched(model) as steps:
            train(model, 2)
        assert isinstance(model.policy.optimizer, AdaptiveUPGD)
        assert len(steps) == scaler_of(model).step_count == 8
        assert {state["step"] for state in model.policy.optimizer.state.values()} == {8}
        assert steps[-1].promised < 1.0
        for step in steps:
            assert differing(step.used, {name: raw * step.promised for name, raw in step.raw.items()}) == []
        assert unmoved(model, before) == []

    def test_upgd_vgs_numerical_stability(self) -> None:
        for optimizer in ("upgd", "adaptive_upgd"):
            model = tiny(optimizer_class=optimizer, learning_rate=0.1, vgs_alpha=100.0, vgs_warmup_steps=0)
            fill(model, 0.0)
            train(model, 6)
            assert all_finite(model.get_parameters())
            assert 0.1 <= logged(model, "vgs/scaling_factor_min") < 1.0

    def test_vgs_warmup_behavior(self) -> None:
        model = tiny(vgs_warmup_steps=4, vgs_alpha=1.0)
        with watched(model) as steps:
            train(model, 6)
        assert [differing(step.used, step.raw) == [] for step in steps] == [True] * 4 + [False] * 2
        assert [step.promised < 1.0 for step in steps] == [False] * 4 + [True] * 2

    def test_vgs_disabled_mode(self) -> None:
        without = tiny(variance_gradient_scaling=False)
        with watched(without) as steps:
            train(without, 3)
        waiting = tiny(vgs_warmup_steps=10)
        train(waiting, 3)
        assert without.variance_gradient_scaler is None
        assert without.get_parameters()["vgs_state"] is None
        assert not [key for key in without.logger.name_to_value if key.startswith("vgs/")]
        assert all(differing(step.used, step.raw) == [] for step in steps)
        assert differing(weights_of(without), weights_of(waiting)) == []

        weight = nn.Parameter(torch.ones(2))
        scaler = VarianceGradientScaler([weight], enabled=False, warmup_steps=0, alpha=100.0)
        for sign in (1.0, -1.0, 1.0):
            weight.grad = torch.full((2,), sign)
            assert scaler.scale_gradients() == 1.0
            assert weight.grad.tolist() == [sign, sign]
            scaler.step()
        assert (scaler.step_count, scaler.grad_norm_ema) == (0, None)

    def test_vgs_state_persistence(self, tmp_path: Path) -> None:
        model = tiny(vgs_warmup_steps=2)
        train(model, 4)
        state = scaler_of(model).state_dict()
        assert scaler_of(model).step_count == 4
        assert scaler_of(model).get_scaling_factor() < 1.0
        model.save(tmp_path / "model.zip")
        given = tiny(seed=3, vgs_warmup_steps=2)
        given.set_parameters(model.get_parameters())
        for restored in (DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu"), given):
            assert differing(scaler_of(restored).state_dict(), state) == []
            assert [*map(id, scaler_of(restored).parameters)] == [*map(id, restored.policy.parameters())]


class TestUPGDWithTwinCritics:
    def test_upgd_twin_critics_basic(self) -> None:
        model = make_model()
        before = weights_of(model)
        train(model, 1)
        lengths = [float(samples.mask.mean()) for samples in model.rollout_buffer.get(model.batch_size)]
        assert min(lengths) < 1.0, "no minibatch is padded, so none could tell"
        heads = [name for name in before if name.startswith(CRITICS)]
        assert [name.split(".")[2] for name in heads] == ["0"] * 4 + ["1"] * 4
        assert set(heads).isdisjoint(unmoved(model, before))
        values = model.rollout_buffer.critic_values
        assert (values[..., 0] != values[..., 1]).all()
        assert (model.rollout_buffer.values.ravel() == values.min(axis=-1)).all()
        assert logged(model, "twin_critics/divergence") > 0.0

    def test_upgd_twin_critics_gradient_flow(self) -> None:
        """Every head learns from its own loss alone, as it would if there were no other."""
        model = make_model()
        train(model, 1)
        latent = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
        returns = torch.linspace(0.0, 10.0, 6)
        outputs, heads = model.policy.value_net(latent), list(model.policy.value_net.heads)
        model.policy.zero_grad()
        model.policy.values.loss(outputs, returns, torch.zeros(6, 2), None).backward()  # type: ignore[no-untyped-call]
        for head in heads:
            together = [gradient_of(parameter) for parameter in head.parameters()]
            alone = model.policy.values.loss(head(latent).unsqueeze(1), returns, torch.zeros(6, 1), None)
            expected = torch.autograd.grad(alone / 2, list(head.parameters()))
            for gradient, own in zip(together, expected, strict=True):
                assert torch.allclose(gradient, own)
                assert gradient.any()

    def test_twin_critics_numerical_stability_with_upgd(self) -> None:
        """Returns of millions change what neither critic said, and no weight by more than its steps allow."""
        settings = {**TINY, "learning_rate": 1e-3, "optimizer_kwargs": {"weight_decay": 0.0}}
        millions = {"func": lambda reward: 1e6 * float(reward)}
        envs = make_vec_env("CartPole-v1", 3, seed=0, wrapper_class=TransformReward, wrapper_kwargs=millions)
        model = make_model(envs, **settings)
        latent = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
        said = model.policy.values.mean(model.policy.value_net(latent)).detach()
        before = weights_of(model)
        train(model, 1)
        assert model.value_scale.snapshot.std > 1e6
        bound = 1e-3 * (1.0 + 6 * 1e-3)
        layers = {f"{CRITICS}.{index}.2.{name}" for index in (0, 1) for name in ("weight", "bias")}
        moved = {name: float((after - before[name]).abs().max()) for name, after in weights_of(model).items()}
        assert max(size for name, size in moved.items() if name not in layers) <= bound
        says = model.policy.values.mean(model.policy.value_net(latent)).detach()
        assert float((says - said).abs().max()) < 0.05 * model.value_scale.snapshot.std
        train(model, 4)
        assert all_finite(model.get_parameters())
        assert math.isfinite(logged(model, "twin_critics/divergence"))


class TestUPGDWithPBT:
    def test_pbt_hyperparam_exploration(self, tmp_path: Path) -> None:
        scheduler, models = pair(tmp_path, vgs_warmup_steps=0)
        target, member = models[0], scheduler.population[0]
        for strategy in ("reset", "copy"):
            assert exploit(scheduler, models, optimizer_exploit_strategy=strategy) == [0]
            explored: dict[str, Any] = dict(member.hyperparams)
            for config in EXPLORED:
                config.check_value(explored[config.name])
            for _ in range(2):
                groups = target.policy.optimizer.param_groups
                wanted = [(explored["learning_rate"], explored["sigma"])] * 2
                assert [(group["lr"], group["sigma"]) for group in groups] == wanted
                assert scaler_of(target).settings.alpha == explored["vgs_alpha"]
                assert target.vf_coef == explored["vf_coef"]
                train(target, 1)
        assert len({member.hyperparams["sigma"] for member in scheduler.population}) == 2

    def test_pbt_exploit_and_explore_with_upgd(self, tmp_path: Path) -> None:
        scheduler, (target, source) = pair(tmp_path)
        member = scheduler.population[0]
        parameters, hyperparams, checkpoint_format = scheduler.exploit_and_explore(member)
        assert parameters is not None
        assert (checkpoint_format, hyperparams) == (FORMAT_V2, member.hyperparams)
        apply_exploit(target, parameters, hyperparams)
        assert differing(weights_of(target), weights_of(source)) == []
        assert isinstance(target.policy.optimizer, AdaptiveUPGD)
        assert target.policy.optimizer.state_dict()["state"] == {}
        assert scaler_of(target).step_count == scaler_of(source).step_count == 3
        train(target, 1)
        assert differing(weights_of(target), weights_of(source)) != []
        assert {state["step"] for state in target.policy.optimizer.state.values()} == {1}

    def test_pbt_population_divergence_prevention(self, tmp_path: Path) -> None:
        """A diverged member is replaced and copied by none; hyperparameters keep their ranges, members their own."""
        models = [tiny(seed) for seed in range(3)]
        fill(models[0], math.nan)
        scheduler = make_scheduler(tmp_path, size=3, hyperparams=EXPLORED, truncation_ratio=0.34)
        copied: list[list[int]] = []
        for step in (5, 10, 15):
            scores = [
                float(step + seed - 99) if all_finite(weights_of(model)) else math.nan
                for seed, model in enumerate(models)
            ]
            report(scheduler, models, scores, step)
            copied.append(exploit(scheduler, models))
            for member, model in zip(scheduler.population, models, strict=True):
                for config in EXPLORED:
                    config.check_value(member.hyperparams[config.name])
                train(model, 1)
                assert all_finite(model.get_parameters())
        assert copied == [[0]] * 3
        policies = [torch.cat([each.flatten() for each in weights_of(model).values()]) for model in models]
        assert len({tuple(policy.tolist()) for policy in policies}) == 3


class TestFullIntegration:
    def test_all_components_together_basic(self, tmp_path: Path) -> None:
        population = population_of_two(tmp_path)
        told: list[PopulationMember] = []
        result = population.train(4, told.append)
        assert [member.step for member in result.table] == [4, 4]
        better = max(told[:2], key=lambda status: status.performance or -math.inf)
        assert [status.copied_from for status in told] == [None, None, better.member_id, None, None]
        assert sum(member.exploits for member in result.table) == 1
        for model in population.models:
            assert model.n_critics == 2
            assert isinstance(model.policy.optimizer, AdaptiveUPGD)
            assert scaler_of(model).step_count == 16
            assert scaler_of(model).get_scaling_factor() < 1.0
            assert all_finite(model.get_parameters())

    def test_full_integration_numerical_stability(self) -> None:
        """Noise in proportion to the step stays in proportion from the first step on."""
        noise = {"adaptive_noise": True, "sigma": 0.01}
        model = tiny(optimizer_kwargs=noise, learning_rate=1e-2, vgs_alpha=1.0, clip_range_vf=1.0)
        before = weights_of(model)
        for update in range(1, 13):
            train(model, 1)
            assert 0.01 / 4 < (noise_to_signal(model.policy.optimizer) or math.nan) < 0.01 * 4
            assert all_finite(model.get_parameters())
            hidden = {name: weight for name, weight in weights_of(model).items() if not name.startswith(CRITICS)}
            assert max(float((after - before[name]).abs().max()) for name, after in hidden.items()) < 0.1 * update

    def test_save_load_with_all_components(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = {**TINY, "vgs_warmup_steps": 1, "clip_range": 0.3, "critic_lr_multiplier": 2.0}
        whole = make_model(make_envs(normalize=True), **settings)
        train(whole, 4)
        model = make_model(make_envs(normalize=True), **settings)
        train(model, 2)
        model.save(tmp_path / "model.zip")
        loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(normalize=True), device="cpu")
        assert loaded.get_parameters()["vgs_state"] is not None
        train(loaded, 2)
        assert loaded.num_timesteps == whole.num_timesteps
        assert differing(loaded.get_parameters(), whole.get_parameters()) == []

    def test_gradient_flow_all_components(self) -> None:
        """With entropy, clipped values and scaling on, every parameter has a gradient, is measured, and moves."""
        model = tiny(ent_coef=0.01, clip_range_vf=5.0, vgs_warmup_steps=0)
        before = weights_of(model)
        with watched(model) as steps:
            train(model, 2)
        assert set(steps[0].raw) == set(steps[0].used) == set(before)
        assert [name for name, gradient in steps[0].raw.items() if not (gradient != 0).any()] == []
        assert unmoved(model, before) == []
        assert scaler_of(model).state_dict()["observations"].tolist() == [2] * len(before)  # type: ignore[union-attr]


class TestEdgeCasesAndFailureModes:
    def test_zero_gradients_handling(self) -> None:
        """Nothing but weight decay; the scaling has nothing to shrink."""
        for optimizer_class in BOTH:
            weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.0]))
            optimizer = optimizer_class([weight], lr=0.1, weight_decay=0.5, sigma=0.0)
            scaler = VarianceGradientScaler([weight], warmup_steps=0)
            for _ in range(3):
                weight.grad = torch.zeros(3)
                assert scaler.scale_gradients() == 1.0
                optimizer.step()
                scaler.step()
            assert weight.tolist() == pytest.approx([0.95**3, -2 * 0.95**3, 0.0])

    def test_extremely_large_gradients(self) -> None:
        for optimizer_class in BOTH:
            weight = nn.Parameter(torch.tensor([0.5, -0.25]))
            optimizer = optimizer_class([weight], lr=1e-3, sigma=0.0)
            for size in (1e38, 3e38):
                weight.grad = torch.full((2,), size)
                optimizer.step()
                assert all_finite([weight.detach(), optimizer.state_dict()["state"]])
            before = copy.deepcopy([weight.detach(), optimizer.state_dict()])
            weight.grad = torch.tensor([math.inf, 1.0])
            with pytest.raises(NonFiniteGradientError):
                optimizer.step()
            assert differing([weight.detach(), optimizer.state_dict()], before) == []

    def test_mixed_precision_compatibility(self) -> None:
        """Parameters of 16 bits keep state of 32, which follows that of a float32 parameter."""
        for dtype in (torch.bfloat16, torch.float16):
            for optimizer_class in BOTH:
                low, full = nn.Parameter(torch.ones(4, dtype=dtype)), nn.Parameter(torch.ones(4))
                optimizers = [optimizer_class([each], lr=1e-2, sigma=0.0, weight_decay=0.0) for each in (low, full)]
                scaler = VarianceGradientScaler([low], warmup_steps=0)
                for step in range(40):
                    low.grad = torch.full((4,), 0.5 + 0.125 * (step % 2), dtype=dtype)
                    full.grad = low.grad.float()
                    for optimizer in optimizers:
                        optimizer.step()
                    scaler.update_statistics()
                averages = tensors_in(optimizers[0].state_dict()["state"])
                assert {average.dtype for average in averages} == {torch.float32}
                assert low.dtype == dtype
                assert torch.allclose(low.float(), full, atol=0.05)
                utility = optimizers[0].state[low]["utility"]
                assert torch.allclose(utility, optimizers[1].state[full]["utility"], rtol=0.05)
                assert scaler.grad_mean_ema == pytest.approx(0.5625, rel=0.01)

    def test_batch_size_one_handling(self) -> None:
        model = tiny(n_steps=4, batch_size=1)
        before = weights_of(model)
        with watched(model) as steps:
            train(model, 1)
        assert len(steps) == 12
        assert all_finite(model.get_parameters())
        assert unmoved(model, before) == []

    def test_parameter_groups_with_different_lrs(self) -> None:
        """The critics' rate is ten times the actor's in the steps themselves, after any number of updates."""
        quiet = {"sigma": 0.0, "weight_decay": 0.0}
        moved = []
        for factor in (1.0, 10.0):
            model = tiny(learning_rate=1e-3, critic_lr_multiplier=factor, optimizer_kwargs=quiet, return_scale=None)
            before = weights_of(model)
            train(model, 1)
            moved.append({name: after - before[name] for name, after in weights_of(model).items()})
        for name, change in moved[0].items():
            is_critic = name.startswith(("value_net", "lstm_critic"))
            assert torch.allclose(moved[1][name], change * (10.0 if is_critic else 1.0), rtol=1e-2, atol=2e-7), name
        train(model, 1)
        assert [group["lr"] for group in model.policy.optimizer.param_groups] == pytest.approx([1e-3, 1e-2])


class TestPerformanceAndConvergence:
    def test_upgd_convergence_speed(self) -> None:
        """On a quadratic with curvatures from mu = 1/4 to 1 and lr = 1, no weight is protected by more than
        sigmoid(1), so that each step leaves at most 1 - mu (1 - sigmoid(1)) of the distance to the minimum."""
        curvature, minimum = torch.linspace(0.25, 1.0, 8), torch.linspace(0.1, 1.0, 8)
        share = 1 - 0.25 * (1 - torch.sigmoid(torch.tensor(1.0)).item())
        for start in (-10.0, 0.01, 10.0):
            weight = nn.Parameter(torch.full((8,), start))
            optimizer = UPGD([weight], lr=1.0, weight_decay=0.0, sigma=0.0, beta_utility=0.0)
            for _ in range(100):
                distance = float((weight - minimum).detach().norm())
                weight.grad = curvature * (weight.detach() - minimum)
                optimizer.step()
                assert float((weight - minimum).detach().norm()) <= share * distance + 1e-6
        model = AdaptiveUPGD([weight := nn.Parameter(torch.full((8,), 10.0))], lr=0.1, weight_decay=0.0)
        for _ in range(600):
            weight.grad = curvature * (weight.detach() - minimum)
            model.step()
        assert float((curvature * (weight.detach() - minimum).square()).sum()) < 1e-2

    def test_memory_usage_stability(self) -> None:
        """Neither the state that would be saved nor the tensors alive grow from one update to the next."""
        model = tiny(vgs_estimator="element")
        train(model, 2)
        held = memory_of(model)
        train(model, 4)
        assert memory_of(model) == held


class TestCrossComponentInteractions:
    def test_vgs_scaling_with_upgd_perturbation(self) -> None:
        """Scaling by 0.1 makes fixed noise ten times as loud beside the step, and leaves adaptive noise as it is."""
        adaptive: dict[str, Any] = {"sigma": 0.01, "adaptive_noise": True, "noise_beta": 0.0, "min_noise_std": 0.0}
        for kwargs, louder in (({"sigma": 0.01}, 10.0), (adaptive, 1.0)):
            ratios = []
            for alpha in (0.0, 1e9):
                model = tiny(optimizer_class="upgd", optimizer_kwargs=kwargs, vgs_alpha=alpha, vgs_warmup_steps=2)
                train(model, 3)
                ratios.append(noise_to_signal(model.policy.optimizer) or math.nan)
            assert logged(model, "vgs/scaling_factor") == 0.1
            assert ratios[1] == pytest.approx(louder * ratios[0], rel=1e-4)
        assert ratios == pytest.approx([0.01, 0.01], rel=1e-4)

    def test_twin_critics_with_pbt_hyperparams(self, tmp_path: Path) -> None:
        """Mutated vf_coef and learning_rate reach both critics alike, and the gap between them stays of their size."""
        scheduler, models = pair(tmp_path, vgs_warmup_steps=1000)
        target, source = models
        assert exploit(scheduler, models, optimizer_exploit_strategy="copy") == [0]
        assert target.vf_coef != source.vf_coef
        samples = next(iter(source.rollout_buffer.get(24)))
        gradients = []
        for model in (target, source):
            model.policy.zero_grad()
            model._minibatch_losses(samples).total.backward()  # type: ignore[no-untyped-call]
            gradients.append([gradient_of(parameter) for parameter in model.policy.value_net.parameters()])
        for changed, original in zip(*gradients, strict=True):
            assert torch.allclose(changed / target.vf_coef, original / source.vf_coef, rtol=1e-3, atol=1e-6)
        train(target, 3)
        rates = {group["lr"] for group in target.policy.optimizer.param_groups}
        assert rates == {scheduler.population[0].hyperparams["learning_rate"]}
        spread = math.sqrt(logged(target, "train/value_variance")) + target.value_scale.snapshot.std
        assert 0.0 < logged(target, "twin_critics/divergence") < 3 * spread
