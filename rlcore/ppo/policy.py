"""Recurrent actor-critic whose critics are separate heads, each a distribution over returns; its rollout buffers."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RecurrentRolloutBufferSamples, RNNStates
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    MlpExtractor,
    NatureCNN,
)
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from rlcore.checkpoint.codec import register_class
from rlcore.errors import CheckpointError, SettingError
from rlcore.optim.transfers import send
from rlcore.ppo.losses import QuantileValues, ValueDistribution
from rlcore.ppo.settings import make_optimizer

if TYPE_CHECKING:
    _Base = RecurrentRolloutBuffer
else:
    _Base = object


SUPPORT = "value_support"
"""The buffer that holds the atoms of the critics, where they have any."""

CRITIC_MODULES = ("value_net", "critic", "lstm_critic", "mlp_extractor.value_net", "vf_features_extractor")


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float, critic_lr_multiplier: float) -> None:
    """Give every group the rate ``lr``, the group of the critics ``critic_lr_multiplier`` times that."""
    for group in optimizer.param_groups:
        group["lr"] = lr * (critic_lr_multiplier if group.get("name") == "critic" else 1.0)


class Critics(nn.Module):
    """``n_critics`` independent heads with hidden layers of their own over one shared latent.

    :param hidden: widths of each head's hidden layers
    :param n_outputs: width of each head's output, at least 1
    """

    def __init__(
        self, latent_dim: int, hidden: list[int], n_critics: int, n_outputs: int, activation_fn: type[nn.Module]
    ) -> None:
        super().__init__()
        widths = [latent_dim, *hidden]
        self.heads = nn.ModuleList()
        for _ in range(n_critics):
            layers = [(nn.Linear(*pair), activation_fn()) for pair in pairwise(widths)]
            self.heads.append(nn.Sequential(*chain(*layers), nn.Linear(widths[-1], n_outputs)))

    def initialise_orthogonally(self) -> None:
        """Gain sqrt(2) in hidden layers and 1 at the output, as Stable-Baselines3 initialises its value network."""
        for head in self.heads:
            for layers, gain in ((head[:-1], 2**0.5), (head[-1:], 1.0)):  # type: ignore[index]
                layers.apply(partial(RecurrentActorCriticPolicy.init_weights, gain=gain))

    def forward(self, latent: Tensor) -> Tensor:
        """
        :param latent: shape (batch, latent_dim)
        :return: shape (batch, n_critics, n_outputs)
        """
        return torch.stack([head(latent) for head in self.heads], dim=1)

    def output_layers(self) -> list[nn.Linear]:
        """Return the last layer of each head."""
        return [head[-1] for head in self.heads]  # type: ignore[index]


def initialise_inputs(lstm: nn.LSTM) -> None:
    """Draw input weights so that the input of a gate varies as the LSTM's inputs do (LeCun et al. 1998, section 4.6).

    PyTorch draws them by the hidden size. Behind an LSTM over few inputs, a critic then learns one value for every
    state. An actor is better begun that way.
    """
    for name, weight in lstm.named_parameters():
        if name.startswith("weight_ih"):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)


def _one_step(lstm: nn.LSTM, features: Tensor, states: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return outputs and states as ``lstm`` up to the last bits, of one time step without gradients, but faster."""
    after: list[tuple[Tensor, Tensor]] = []
    for weights, hidden, cell in zip(lstm.all_weights, *states, strict=True):
        after.append(torch.lstm_cell(features, (hidden, cell), *weights))
        features = after[-1][0]
    hidden_states, cell_states = zip(*after, strict=True)
    return features, (torch.stack(hidden_states), torch.stack(cell_states))


class DistributionalRecurrentPolicy(RecurrentActorCriticPolicy):
    """sb3-contrib's recurrent policy with distributional critics in place of its value network, for vectors.

    ``evaluate_actions`` returns the critics' outputs, of shape (batch, n_critics, n_outputs), in place of values.

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
        extractor = kwargs.setdefault("features_extractor_class", self.default_extractor)
        kwargs["features_extractor_kwargs"] = dict(kwargs.get("features_extractor_kwargs") or {})  # SB3 writes into it
        arch = net_arch if net_arch is not None else [] if extractor is NatureCNN else [64, 64]
        arch = {"pi": arch, "vf": arch} if isinstance(arch, list) else arch
        self.n_critics = n_critics
        self.values = values or QuantileValues(32)
        self.critic_lr_multiplier = critic_lr_multiplier
        self.critic_arch = list(arch.get("vf", []))
        optimizer_class = kwargs.pop("optimizer_class", torch.optim.Adam)
        optimizer_kwargs = kwargs.pop("optimizer_kwargs", None) or {}
        kwargs["net_arch"] = {"pi": list(arch.get("pi", [])), "vf": []}
        unused = {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {}}  # upstream builds an optimizer too
        super().__init__(*args, **{**kwargs, **unused})
        if self.ortho_init and self.lstm_critic is not None:
            initialise_inputs(self.lstm_critic)
        self.optimizer_class = optimizer_class
        self.optimizer_kwargs = optimizer_kwargs
        self.rebuild_optimizer()

    def save(self, path: Any) -> NoReturn:
        """Raise CheckpointError: the file would hold neither the network's sizes nor the meaning of its outputs."""
        reason = "a policy has no file of its own; use model.save(path), and DistributionalPPO.load(path) or"
        raise CheckpointError(path, f"{reason} rlcore.load_policy(path)")

    @classmethod
    def load(cls, path: Any, device: torch.device | str = "auto") -> NoReturn:  # noqa: ARG003
        """Raise CheckpointError, as ``save``."""
        cls.save(cls, path)  # type: ignore[arg-type]

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """Do what Stable-Baselines3 does, with an int as width: of MultiDiscrete it gives a NumPy integer."""
        extractor = super().make_features_extractor()
        extractor._features_dim = int(extractor.features_dim)
        return extractor

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = MlpExtractor(
            self.lstm_output_dim,
            net_arch=self.net_arch,
            activation_fn=self.activation_fn,
            device=torch.get_default_device(),  # the meta device, where only shapes are asked for
        )

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        latent, n_outputs = self.mlp_extractor.latent_dim_vf, self.values.n_outputs
        self.value_net = Critics(latent, self.critic_arch, self.n_critics, n_outputs, self.activation_fn)
        if self.ortho_init:
            self.value_net.initialise_orthogonally()
        support = self.values.fixed_support()
        if support is not None:
            self.register_buffer(SUPPORT, support)

    @staticmethod
    def _process_sequence(  # type: ignore[override]  # upstream declares the pair of states as one tensor
        features: Tensor, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor, lstm: nn.LSTM
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Call the LSTM once for whole sequences, as the rollout buffer cuts them: episodes start at their first step.

        Features and starts are sequence by sequence, of shape (n_seq * length, ...); states have n_seq entries each.
        Starts may lie on the CPU, which reads them.
        """
        n_seq = lstm_states[0].shape[1]
        starts = episode_starts.reshape(n_seq, -1)
        kept = send(1.0 - starts[:, 0], features.device).view(1, n_seq, 1)
        hidden, cell = (kept * state for state in lstm_states)
        if starts.shape[1] == 1 and not torch.is_grad_enabled():
            return _one_step(lstm, features, (hidden, cell))
        if bool((starts[:, 1:] != 0.0).any()):  # upstream calls the LSTM once a time step
            starts = send(episode_starts, features.device)
            outputs, states = RecurrentActorCriticPolicy._process_sequence(features, lstm_states, starts, lstm)
            return outputs, states  # type: ignore[return-value]
        sequences = features.reshape(n_seq, -1, lstm.input_size).swapaxes(0, 1)
        outputs, states = lstm(sequences, (hidden, cell))
        return outputs.transpose(0, 1).flatten(0, 1), states

    def rebuild_optimizer(self) -> None:
        """Start a fresh optimizer with one group for the actor, one for the critics; its noise keeps its seed."""
        present = self.optimizer.param_groups[0]
        groups: dict[str, list[tuple[str, nn.Parameter]]] = {"actor": [], "critic": []}
        for name, parameter in self.named_parameters():
            groups["critic" if name.startswith(CRITIC_MODULES) else "actor"].append((name, parameter))
        self.optimizer = make_optimizer(
            self.optimizer_class,
            [{"params": params, "name": name, "lr": present["lr"]} for name, params in groups.items()],
            {**({"seed": present["seed"]} if "seed" in present else {}), **self.optimizer_kwargs},
        )
        set_learning_rate(self.optimizer, present["lr"], self.critic_lr_multiplier)

    def forward(  # type: ignore[override]  # upstream's own signature departs from its base's
        self, obs: PyTorchObs, lstm_states: RNNStates, episode_starts: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, RNNStates]:
        """Act, and value the same observations from the LSTM state before this step.

        :return: actions, mean value by each critic of shape (n_envs, n_critics), log_prob, LSTM states after this step
        """
        ordered = _in_row_order(obs)
        actions, outputs, log_prob, states = super().forward(ordered, lstm_states, episode_starts, deterministic)
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
        :return: outputs of every critic, whose distribution ``values`` reads, shape (n_envs, n_critics, n_outputs)
        """
        outputs: Tensor = super().predict_values(_in_row_order(obs), lstm_states, episode_starts)
        return outputs


def _in_row_order(observations: PyTorchObs) -> Any:
    """Copy views (transposed images): convolutions sum them in another order than what the buffer and files hold."""
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


POLICIES: dict[str, type[DistributionalRecurrentPolicy]] = {
    "MlpLstmPolicy": DistributionalRecurrentPolicy,
    "CnnLstmPolicy": DistributionalRecurrentCnnPolicy,
    "MultiInputLstmPolicy": DistributionalRecurrentMultiInputPolicy,
}
"""The policies by the names that sb3-contrib gives their kinds."""

for _class in POLICIES.values():
    register_class(f"rlcore.{_class.__name__}", _class)


def find_policy(policy: object) -> type[DistributionalRecurrentPolicy]:
    """Return a policy class, or the one of a name in ``POLICIES``, or raise SettingError."""
    found = POLICIES.get(policy) if isinstance(policy, str) else policy
    if not (isinstance(found, type) and issubclass(found, DistributionalRecurrentPolicy)):
        raise SettingError("policy", f"policy={policy!r} is not known; use one of {sorted(POLICIES)} or a policy class")
    return found


class TwinCriticStorage(_Base):
    """Stores the mean value of each critic; advantages and returns are computed from the smallest.

    Samples carry ``old_values`` of shape (padded batch, n_critics), so that clipping compares each critic with itself.
    """

    def __init__(self, *args: Any, n_critics: int, **kwargs: Any) -> None:
        self.n_critics = n_critics
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()  # type: ignore[no-untyped-call]
        self.critic_values = np.zeros((self.buffer_size, self.n_envs, self.n_critics), dtype=np.float32)
        is_index = isinstance(self.action_space, spaces.Discrete | spaces.MultiDiscrete)
        self.actions = np.zeros(self.actions.shape, np.int64 if is_index else np.float32)  # as the policy puts them out

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add a step as upstream, where the values are the mean by each critic, of shape (n_envs, n_critics)."""
        *step, values, log_prob = args
        self.critic_values[self.pos] = values.cpu().numpy()
        super().add(*step, self.pessimistic(values), log_prob, **kwargs)

    @staticmethod
    def pessimistic(critic_values: Tensor) -> Tensor:
        """Return the smallest critic's value (Fujimoto et al. 2018, eq. 10), shape (n_envs,)."""
        return critic_values.amin(dim=-1)

    def get(self, batch_size: int | None = None) -> Generator[RecurrentRolloutBufferSamples, None, None]:  # type: ignore[override]
        if not self.generator_ready:
            self.critic_values = self.swap_and_flatten(self.critic_values)
        yield from super().get(batch_size)

    def _get_samples(  # type: ignore[override]
        self, batch_inds: NDArray[Any], env_change: NDArray[Any], *_: Any
    ) -> RecurrentRolloutBufferSamples:
        """Do what upstream does, but copy each field once and not each of its sequences; a Dict's too.

        ``mask`` and ``episode_starts`` stay on the CPU, which reads them. It does not wait for the device.
        """
        begins = np.logical_or(self.episode_starts[batch_inds], env_change[batch_inds]).ravel()
        begins[0] = True
        firsts = np.flatnonzero(begins)
        lengths = np.diff(firsts, append=len(batch_inds))
        real = (np.arange(lengths.max()) < lengths[:, None]).ravel()

        def padded(field: NDArray[Any]) -> Tensor:
            values = torch.from_numpy(field[batch_inds])
            laid = torch.zeros((len(real), *values.shape[1:]), dtype=values.dtype)
            laid.numpy()[real] = values.numpy()
            return laid

        def sent(field: NDArray[Any]) -> Tensor:
            return send(padded(field), self.device)

        def first(states: NDArray[Any]) -> Tensor:
            return send(torch.tensor(states[batch_inds[firsts]].swapaxes(0, 1)), self.device)

        return RecurrentRolloutBufferSamples(
            observations=tree_map(sent, self.observations),
            actions=sent(self.actions),
            old_values=sent(self.critic_values),
            old_log_prob=sent(self.log_probs).flatten(),
            advantages=sent(self.advantages).flatten(),
            returns=sent(self.returns).flatten(),
            lstm_states=RNNStates(
                (first(self.hidden_states_pi), first(self.cell_states_pi)),
                (first(self.hidden_states_vf), first(self.cell_states_vf)),
            ),
            episode_starts=padded(self.episode_starts).flatten(),
            mask=torch.from_numpy(real.astype(np.float32)),
        )


class TwinCriticRolloutBuffer(TwinCriticStorage, RecurrentRolloutBuffer):
    """For observations that are one array."""


class TwinCriticDictRolloutBuffer(TwinCriticStorage, RecurrentDictRolloutBuffer):  # type: ignore[misc]
    """For Dict observations."""


TwinCriticBuffer = TwinCriticRolloutBuffer | TwinCriticDictRolloutBuffer


def buffer_class(observation_space: spaces.Space[Any]) -> type[TwinCriticBuffer]:
    """Return the buffer for observations of that space."""
    return TwinCriticDictRolloutBuffer if isinstance(observation_space, spaces.Dict) else TwinCriticRolloutBuffer
