"""How the checks talk to `ppo.PPO`."""

import copy

import torch

from rlverify.checks import Adapter


class PPOAdapter(Adapter):
    def save(self, model, folder):
        model.save(folder / "model.pt")

    def load(self, folder, fresh):
        fresh.load(folder / "model.pt")
        return fresh

    def get_parameters(self, model):
        return copy.deepcopy((model.agent.state_dict(), model.optimizer.state_dict()))

    def set_parameters(self, model, parameters):
        agent, optimizer = copy.deepcopy(parameters)
        model.agent.load_state_dict(agent)
        model.optimizer.load_state_dict(optimizer)

    def act(self, model):
        return model.agent(torch.zeros(1, 4))[0].probs.argmax().item()

    def set_learning_rate(self, model, value):
        for group in model.optimizer.param_groups:
            group["lr"] = value
