"""The code of tiny learners for the checks: a clean one, and others with one thing wrong; tests write it to a file."""

from __future__ import annotations

from pathlib import Path

CODE = '''\
import random

import torch

from rlverify.checks import Adapter, subject


class Learner:
    """Regression of one number."""

    def __init__(self, size=2):
        self.net = torch.nn.Linear(size, 1)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.1)

    def learn(self, steps):
        for _ in range(3):
            self.optimizer.zero_grad()
            self.net(torch.ones(1, 2)).square().sum().backward()
            self.optimizer.step()


class Unrepeatable(Learner):
    def learn(self, steps):
        torch.manual_seed(random.SystemRandom().getrandbits(32))
        with torch.no_grad():
            self.net.weight += torch.randn(1, 2)
        super().learn(steps)


class Copying(Adapter):
    def get_parameters(self, model):
        return {name: value.clone() for name, value in model.net.state_dict().items()}

    def set_parameters(self, model, parameters):
        model.net.load_state_dict(parameters)


class Sharing(Copying):
    def get_parameters(self, model):
        return model.net

    def set_parameters(self, model, parameters):
        model.net = parameters


def clean():
    return Learner()


def unrepeatable():
    return Unrepeatable()


def needs_arguments(size, *, seed, name="x"):
    return Learner(size)


def takes_anything(*args, size=2, **kwargs):
    return Learner(size)


def ends():
    raise SystemExit(3)


def prints():
    print("printed by the factory")
    return Learner()


a_model = Learner()
not_callable = {"learner": Learner}
copying = subject(Learner, name="copying", adapter=Copying())
sharing = subject(Learner, name="sharing", adapter=Sharing())
expected = subject(
    Learner, name="expected", adapter=Sharing(), expected_failures={"set_parameters_copies": "one network for both"}
)
outdated = subject(
    Learner, name="outdated", adapter=Copying(), expected_failures={"set_parameters_copies": "fixed long ago"}
)
misspelt = subject(Learner, adapter=Copying(), expected_failures={"resume_is_exakt": "a slip"})
'''


def write_learners(folder: Path, name: str = "learners") -> Path:
    """Write the module into a folder; module names must differ between folders, as Python imports a name once."""
    path = folder / f"{name}.py"
    path.write_text(CODE, encoding="utf-8")
    return path
