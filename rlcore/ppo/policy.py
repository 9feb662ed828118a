"""Recurrent actor-critic whose critics are separate heads, each a distribution over returns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from os import PathLike
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    MlpExtractor,
    NatureCNN,
)
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn

from rlcore.checkpoint.codec import register_class
from rlcore.errors import CheckpointError, SettingError
from rlcore.ppo.settings import make_optimizer
from rlcore.ppo.values import QuantileValues, ValueDistribution

SUPPORT = "value_support"
"""The buffer that holds the atoms of the critics, where they have any."""

CRITIC_MODULES = ("value_net", "critic", "lstm_critic", "mlp_extractor.value_net", "vf_features_extractor")


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float, critic_lr_multiplier: float) -> None:
    """Give every group the rate ``lr``, the group of the critics ``critic_lr_multiplier`` times that."""
    for group in optimizer.param_groups:
        group["lr"] = lr * (critic_lr_multiplier if group.get("name") == "critic" else 1.0)


class Critics(nn.Module):
    """``n_critics`` independent heads with hidden layers of their own over one shared latent.

    :param latent_dim: width of the shared latent
    :param hidden: widths of each head's hidden layers
    :param n_critics: number of heads, at least 1
    :param n_outputs: what each head puts out, at least 1
    """

    def __init__(
        self, latent_dim: int, hidden: list[int], n_critics: int, n_outputs: int, activation_fn: type[nn.Module]
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            self._head([latent_dim, *hidden], n_outputs, activation_fn) for _ in range(n_critics)
        )

    @staticmethod
    def _head(widths: list[int], n_outputs: int, activation_fn: type[nn.Module]) -> nn.Sequential:
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise(widths):
            layers += [nn.Linear(width_in, width_out), activation_fn()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], n_outputs))

    def initialise_orthogonally(self) -> None:
        """Gain sqrt(2) in hidden layers and 1 at the output, as Stable-Baselines3 initialises its value network."""
        for head in self.heads:
            linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
            for linear in linears:
                nn.init.orthogonal_(linear.weight, gain=1.0 if linear is linears[-1] else float(np.sqrt(2)))
                nn.init.zeros_(linear.bias)

    def forward(self, latent: Tensor) -> Tensor:
        """
        :param latent: shape (batch, latent_dim)
        :return: shape (batch, n_critics, n_outputs)
        """
        return torch.stack([head(latent) for head in self.heads], dim=1)

    def output_layers(self) -> list[nn.Linear]:
        """The last layer of each head."""
        return [head[-1] for head in self.heads]  # type: ignore[index]


def initialise_inputs(lstm: nn.LSTM) -> None:
    """Draw input weights so that what a gate takes from its inputs varies as they do (LeCun et al. 1998, section 4.6).

    PyTorch draws them by the hidden size, however few the inputs are. An LSTM over a few small numbers, as CartPole's
    are, then puts out nearly the same for all of them, and a critic behind it learns one value for every state. An
    actor is better begun that way: near to one distribution for every state.
    """
    for name, weight in lstm.named_parameters():
        if name.startswith("weight_ih"):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)


def one_step(
    lstm: nn.LSTM, features: Tensor, lstm_states: tuple[Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One time step, layer by layer, in two thirds of the time of a call for sequences; without gradients.

    Differs from ``lstm(...)`` in the last bits. Between layers there is no dropout, as in evaluation.

    :param features: shape (batch, lstm.input_size)
    :param lstm_states: hidden and cell states before the step, each (layers, batch, hidden_size)
    :return: outputs of shape (batch, hidden_size), states after the step
    """
    states: list[tuple[Tensor, Tensor]] = []
    for layer, (hidden, cell) in enumerate(zip(*lstm_states, strict=True)):
        states.append(torch.lstm_cell(features, (hidden, cell), *lstm.all_weights[layer]))
        features = states[-1][0]
    hidden_states, cell_states = zip(*states, strict=True)
    return features, (torch.stack(hidden_states), torch.stack(cell_states))


class DistributionalRecurrentPolicy(RecurrentActorCriticPolicy):
    """sb3-contrib's recurrent policy with distributional critics in place of its value network, for vectors.

    ``evaluate_actions`` gives the critics' outputs, of shape (batch, n_critics, n_outputs), where upstream gives
    values; ``values`` says what they mean.

    :param n_critics: number of critic heads over the one critic LSTM
    :param values: how each head describes returns; without it, by 32 quantiles
    :param critic_lr_multiplier: the critics' learning rate over the actor's
    :param optimizer_kwargs: without ``lr``, which the schedule gives
    """

    value_net: Critics  # type: ignore[assignment]  # upstream declares a single linear layer
    default_extractor: ClassVar[type[BaseFeaturesExtractor]] = FlattenExtractor
    takes_dict: ClassVar[bool] = False

    def __init__(
        self,
        *args: Any,
        n_critics: int = 2,
        values: ValueDistribution | None = None,
        critic_lr_multiplier: float = 1.0,
        net_arch: list[int] | dict[str, list[int]] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["features_extractor_class"] = self.extractor_for(kwargs)
        kwargs["features_extractor_kwargs"] = dict(kwargs.get("features_extractor_kwargs") or {})  # SB3 writes into it
        widths = [] if kwargs["features_extractor_class"] is NatureCNN else [64, 64]
        arch = widths if net_arch is None else net_arch
        if isinstance(arch, list):
            arch = {"pi": arch, "vf": arch}
        self.n_critics = n_critics
        self.values = QuantileValues(32) if values is None else values
        self.critic_lr_multiplier = critic_lr_multiplier
        self.critic_arch = list(arch.get("vf", []))
        self.actor_arch = list(arch.get("pi", []))
        kwargs["net_arch"] = {"pi": self.actor_arch, "vf": []}
        optimizer_class = kwargs.pop("optimizer_class", torch.optim.Adam)
        optimizer_kwargs = kwargs.pop("optimizer_kwargs", None) or {}
        kwargs |= {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {}}  # upstream builds one that is not used
        super().__init__(*args, **kwargs)
        if self.ortho_init and self.lstm_critic is not None:
            initialise_inputs(self.lstm_critic)
        self.optimizer_class = optimizer_class
        self.optimizer_kwargs = optimizer_kwargs
        self.rebuild_optimizer()

    def save(self, path: Any) -> None:
        """
        :raises CheckpointError: always: the file would not say what the outputs of the critics mean
        """
        raise _no_file_of_its_own(path)

    @classmethod
    def load(cls, path: Any, device: torch.device | str = "auto") -> NoReturn:  # noqa: ARG003
        """
        :raises CheckpointError: always, as ``save``
        """
        raise _no_file_of_its_own(path)

    @classmethod
    def extractor_for(cls, policy_kwargs: Mapping[str, Any]) -> type[BaseFeaturesExtractor]:
        """The features extractor that ``policy_kwargs`` names, or else this policy's own."""
        extractor: type[BaseFeaturesExtractor] = policy_kwargs.get("features_extractor_class", cls.default_extractor)
        return extractor

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """Do what Stable-Baselines3 does, with a width that LSTMs take: of MultiDiscrete it gives a NumPy integer."""
        extractor = super().make_features_extractor()
        extractor._features_dim = int(extractor.features_dim)
        return extractor

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = MlpExtractor(
            self.lstm_output_dim,
            net_arch={"pi": self.actor_arch, "vf": []},
            activation_fn=self.activation_fn,
            device=torch.get_default_device(),  # the meta device, where only shapes are asked for
        )

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        latent, n_outputs = self.mlp_extractor.latent_dim_vf, self.values.n_outputs
        critics = Critics(latent, self.critic_arch, self.n_critics, n_outputs, self.activation_fn)
        if self.ortho_init:
            critics.initialise_orthogonally()
        self.value_net = critics
        support = self.values.fixed_support()
        if support is not None:
            self.register_buffer(SUPPORT, support)

    @staticmethod
    def _process_sequence(  # type: ignore[override]  # upstream declares the pair of states as one tensor
        features: Tensor, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor, lstm: nn.LSTM
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One LSTM call for whole sequences, as the rollout buffer cuts them: episodes start at their first step only.

        Upstream calls the LSTM once a time step as soon as one sequence starts an episode; so does this where a
        sequence holds a start further on.

        :param features: shape (n_seq * length, lstm.input_size), sequence by sequence
        :param lstm_states: hidden and cell states before the sequences, each (layers, n_seq, hidden_size)
        :param episode_starts: shape (n_seq * length,), 1 where an episode starts
        :return: outputs of shape (n_seq * length, hidden_size), states after the sequences
        """
        n_seq = lstm_states[0].shape[1]
        starts = episode_starts.reshape(n_seq, -1)
        if starts.shape[1] == 1 and not torch.is_grad_enabled():
            carried = (1.0 - starts).view(1, n_seq, 1)
            return one_step(lstm, features, (carried * lstm_states[0], carried * lstm_states[1]))
        if bool((starts[:, 1:] != 0.0).any()):
            outputs, states = RecurrentActorCriticPolicy._process_sequence(features, lstm_states, episode_starts, lstm)
            return outputs, states  # type: ignore[return-value]
        carried = (1.0 - starts[:, 0]).view(1, n_seq, 1)
        sequences = features.reshape(n_seq, -1, lstm.input_size).swapaxes(0, 1)
        outputs, states = lstm(sequences, (carried * lstm_states[0], carried * lstm_states[1]))
        return outputs.transpose(0, 1).flatten(0, 1), states

    def rebuild_optimizer(self) -> None:
        """A fresh optimizer over the present parameters: one group for the actor, one for the critics.

        Its noise keeps the seed that it has.
        """
        lr = self.optimizer.param_groups[0]["lr"]
        seed = {name: value for name, value in self.optimizer.param_groups[0].items() if name == "seed"}
        actor: list[tuple[str, nn.Parameter]] = []
        critic: list[tuple[str, nn.Parameter]] = []
        for name, parameter in self.named_parameters():
            (critic if name.startswith(CRITIC_MODULES) else actor).append((name, parameter))
        self.optimizer = make_optimizer(
            self.optimizer_class,
            [{"params": actor, "name": "actor", "lr": lr}, {"params": critic, "name": "critic", "lr": lr}],
            {**seed, **self.optimizer_kwargs},
        )
        set_learning_rate(self.optimizer, lr, self.critic_lr_multiplier)

    def forward(  # type: ignore[override]  # upstream's own signature departs from its base's
        self, obs: PyTorchObs, lstm_states: RNNStates, episode_starts: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, RNNStates]:
        """Act, and value the same observations from the LSTM state before this step.

        :return: actions, mean value by each critic of shape (n_envs, n_critics), log_prob, LSTM states after this step
        """
        observations = _in_row_order(obs)
        actions, outputs, log_prob, states = super().forward(observations, lstm_states, episode_starts, deterministic)
        return actions, self.values.mean(outputs), log_prob, states

    def predict_values(  # type: ignore[override]
        self, obs: PyTorchObs, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor
    ) -> Tensor:
        """
        :return: the smallest critic's mean value, shape (n_envs,)
        """
        return self.values.mean(self.predict_outputs(obs, lstm_states, episode_starts)).amin(dim=-1)

    def predict_outputs(self, obs: PyTorchObs, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor) -> Tensor:
        """
        :return: the whole distribution of every critic as ``values`` reads it, shape (n_envs, n_critics, n_outputs)
        """
        observations = _in_row_order(obs)
        outputs: Tensor = super().predict_values(observations, lstm_states, episode_starts)
        return outputs


def _no_file_of_its_own(path: object) -> CheckpointError:
    return CheckpointError(
        path if isinstance(path, str | PathLike) else None,
        "a policy has no file of its own, which would hold neither its network's sizes nor what its critics' outputs "
        "mean; save the model with model.save(path), and read that file with DistributionalPPO.load(path), or with "
        "rlcore.load_policy(path) to act",
    )


def _in_row_order(observations: PyTorchObs) -> Any:
    """The observations laid out as the buffer and a saved state hold them.

    A transposed image is a view, convolutions on it take other sums, and a resumed run would differ in the last bits.
    """
    if isinstance(observations, Tensor):
        return observations.clone(memory_format=torch.contiguous_format)
    return {key: _in_row_order(part) for key, part in observations.items()}


class DistributionalRecurrentCnnPolicy(DistributionalRecurrentPolicy):
    """For images: ``NatureCNN`` reads them, as in sb3-contrib's CnnLstmPolicy."""

    default_extractor = NatureCNN


class DistributionalRecurrentMultiInputPolicy(DistributionalRecurrentPolicy):
    """For Dict observations: ``CombinedExtractor`` reads them, as in sb3-contrib's MultiInputLstmPolicy."""

    default_extractor = CombinedExtractor
    takes_dict = True


SUPPORT = "value_support"
"""The buffer that holds the atoms of the critics, where they have any."""

POLICIES: dict[str, type[DistributionalRecurrentPolicy]] = {
    "MlpLstmPolicy": DistributionalRecurrentPolicy,
    "CnnLstmPolicy": DistributionalRecurrentCnnPolicy,
    "MultiInputLstmPolicy": DistributionalRecurrentMultiInputPolicy,
}
"""The policies by the names that sb3-contrib gives their kinds."""

for _class in POLICIES.values():
    register_class(f"rlcore.{_class.__name__}", _class)


def find_policy(policy: object) -> type[DistributionalRecurrentPolicy]:
    """
    :param policy: a name in ``POLICIES`` or a policy class
    :raises SettingError: if it is neither
    """
    found = POLICIES.get(policy) if isinstance(policy, str) else policy
    if not (isinstance(found, type) and issubclass(found, DistributionalRecurrentPolicy)):
        raise SettingError("policy", f"policy={policy!r} is not known; use one of {sorted(POLICIES)} or a policy class")
    return found
