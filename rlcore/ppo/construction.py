"""What a ConfiguredPPO is put together from, each part made from the model's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from rlcore.checkpoint.refusal import unusable
from rlcore.errors import StateError, TooLargeError
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo.buffer import TwinCriticBuffer, buffer_class
from rlcore.ppo.configured import ConfiguredPPO
from rlcore.ppo.optimizers import find_optimizer
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.state_parts import check_policy
from rlcore.ppo.values import VALUE_DISTRIBUTIONS, ValueDistribution

_NO_MEMORY = re.compile(
    "can't allocate memory|out of memory|size calculation overflowed|array is too big|allowed dimension exceeded"
)
"""What torch and NumPy say of a size that is too large, where they do not raise MemoryError."""


@contextmanager
def _memory_for(wanted: str, setting: str) -> Iterator[None]:
    """
    :param wanted: what is built, for the error
    :raises TooLargeError: if there is no memory for it
    """
    try:
        yield
    except (MemoryError, RuntimeError, ValueError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        raise TooLargeError(setting, f"{wanted} needs more memory than there is; ask for less") from error


OUR_PACKAGES = ("rlcore.", "sb3_contrib.", "stable_baselines3.", "torch.")
"""Packages whose modules can be built on the meta device."""


def require_network_of(model: ConfiguredPPO, weights: object) -> None:
    """Compare the network that the model's settings ask for with saved weights, before it takes memory.

    :param weights: the saved part ``policy``
    :raises StateError: if names, shapes or numbers do not fit
    """
    if not isinstance(weights, dict):
        raise StateError("holds no policy")
    network = model.policy_kwargs
    widths = network.get("net_arch") or ()
    depths = [len(part) for part in (widths.values() if isinstance(widths, Mapping) else [widths])]
    layers = max([network.get("n_lstm_layers", 1), *depths])
    if layers > len(weights):
        raise StateError(
            f"policy_kwargs ask for {layers} layers, and the file has {len(weights)} tensors of weights; load it with "
            "the settings that it was saved with"
        )
    try:
        with torch.device("meta"), unusable("the network of policy_kwargs, n_quantiles and num_atoms"):
            expected = _policy(model, VALUE_DISTRIBUTIONS[model.value_distribution].from_settings(model, ReturnScale()))
    except StateError:
        classes = [model.policy_class, network.get("features_extractor_class"), network.get("activation_fn")]
        if all(each is None or each.__module__.startswith(OUR_PACKAGES) for each in classes):
            raise
        return  # a class of the user's own that needs real tensors: the weights are compared once it is built
    check_policy(weights, expected.state_dict())


def make_values(model: ConfiguredPPO) -> ValueDistribution:
    """How each critic describes returns."""
    return VALUE_DISTRIBUTIONS[model.value_distribution].from_settings(model, model.value_scale)


def make_policy(model: ConfiguredPPO) -> DistributionalRecurrentPolicy:
    """The network with its optimizer, on the model's device.

    :raises TooLargeError: if there is no memory for it
    """
    values = make_values(model)
    wanted = f"a network of policy_kwargs={model.policy_kwargs!r} with {values.n_outputs} outputs for each critic"
    with _memory_for(wanted, "policy_kwargs"):
        policy = _policy(
            model,
            values,
            critic_lr_multiplier=model.critic_lr_multiplier,
            optimizer_class=find_optimizer(model.optimizer_class),
            optimizer_kwargs=dict(model.optimizer_kwargs),
        )
        return policy.to(model.device)


def _policy(model: ConfiguredPPO, values: ValueDistribution, **options: Any) -> DistributionalRecurrentPolicy:
    policy_class: Any = model.policy_class
    policy: DistributionalRecurrentPolicy = policy_class(
        model.observation_space,
        model.action_space,
        model.lr_schedule,
        n_critics=model.n_critics,
        values=values,
        **options,
        **model.policy_kwargs,
    )
    return policy


def make_buffer(model: ConfiguredPPO) -> TwinCriticBuffer:
    """An empty rollout buffer for the policy's LSTM states.

    :raises TooLargeError: if there is no memory for it
    """
    lstm = model.policy.lstm_actor
    with _memory_for(f"a rollout of n_steps={model.n_steps} in n_envs={model.n_envs} environments", "n_steps"):
        return buffer_class(model.observation_space)(
            model.n_steps,
            model.observation_space,
            model.action_space,
            (model.n_steps, lstm.num_layers, model.n_envs, lstm.hidden_size),
            model.device,
            gamma=model.gamma,
            gae_lambda=model.gae_lambda,
            n_envs=model.n_envs,
            n_critics=model.n_critics,
        )


def initial_lstm_states(model: ConfiguredPPO) -> RNNStates:
    """Zeros, each of shape (layers, n_envs, hidden size)."""
    lstm = model.policy.lstm_actor
    shape = (lstm.num_layers, model.n_envs, lstm.hidden_size)
    hidden = [torch.zeros(shape, device=model.device) for _ in range(4)]
    return RNNStates((hidden[0], hidden[1]), (hidden[2], hidden[3]))


def make_scaler(model: ConfiguredPPO) -> VarianceGradientScaler | None:
    """A scaler that has measured nothing, or None where there is to be none."""
    if not model.variance_gradient_scaling:
        return None
    return VarianceGradientScaler(
        model.policy.named_parameters(),
        beta=model.vgs_beta,
        alpha=model.vgs_alpha,
        eps=model.vgs_eps,
        warmup_steps=model.vgs_warmup_steps,
        estimator=model.vgs_estimator,
        normalization=model.vgs_normalization,
        min_scaling_factor=model.vgs_min_scaling_factor,
        max_normalized_variance=model.vgs_max_normalized_variance,
    )
