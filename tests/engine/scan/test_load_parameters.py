"""`load_parameters_safely` restores weights, optimizer states and plain fields, and unpickles nothing."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3 import PPO

from rlverify.records.errors import ModelFileError
from rlverify.scan import load_parameters_safely, safe_loading
from tests.support.model_files import (
    ALGORITHMS,
    CHANGED,
    changed_file,
    model_file,
    new_model,
    serialized,
    trained_model,
    two_archives,
)

HOSTILE = b"cposix\nsystem\n(X\x06\x00\x00\x00exit 3tR."


def snapshot(model: Any) -> tuple[Any, dict[str, Any]]:
    """All that could change: states, tensors and attributes."""
    _, variables = model._get_torch_save_params()
    tensors = {name: safe_loading._attribute(model, name).detach().clone() for name in variables}
    return copy.deepcopy((model.get_parameters(), tensors)), dict(vars(model))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or bool(one == other)


def load(content: bytes, model: Any) -> Any:
    return load_parameters_safely(io.BytesIO(content), model)


def refused(content: bytes, model: Any, said: str) -> None:
    """The file is refused with one error, and the model is what it was."""
    (states, before) = snapshot(model)
    with pytest.raises(ModelFileError, match=said) as caught:
        load(content, model)
    assert "The model is unchanged" in str(caught.value)
    assert same(states, snapshot(model)[0])
    assert all(value is before[name] for name, value in vars(model).items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_model_is_restored(name: str) -> None:
    saved, model = trained_model(name), new_model(name)
    assert not same(snapshot(saved)[0], snapshot(model)[0])
    report = load(model_file(name), model)
    assert same(snapshot(saved)[0], snapshot(model)[0])
    assert (model.gamma, model.learning_rate, model.seed) == (CHANGED["gamma"], CHANGED["learning_rate"], 5)
    assert model.num_timesteps == saved.num_timesteps > 0
    assert model._n_updates == saved._n_updates > 0
    assert model.lr_schedule(1.0) == CHANGED["learning_rate"]
    states, variables = saved._get_torch_save_params()
    assert {*states, *variables, "gamma", "learning_rate", "num_timesteps", "seed"} <= set(report.restored)
    assert {"policy_class", "observation_space", "lr_schedule"} <= {each.name for each in report.skipped}
    observation = model.observation_space.sample()
    assert same(*(each.predict(observation, deterministic=True)[0].tolist() for each in (saved, model)))


def test_infinities_that_the_model_has_too_are_restored() -> None:
    def build() -> Any:
        model = new_model("PPO", max_grad_norm=float("inf"))
        model.policy.register_buffer("mask", torch.full((2,), -float("inf")))
        return model

    file = io.BytesIO()
    build().save(file)
    model = build()
    assert {"max_grad_norm", "policy"} <= set(load(file.getvalue(), model).restored)
    model.policy.mask.zero_()
    refused(file.getvalue(), model, "mask is not finite")


@pytest.mark.parametrize("name", ["PPO", "DQN", "SAC"])
def test_a_restored_model_trains(name: str) -> None:
    model = new_model(name)
    load(model_file(name), model)
    before = model.num_timesteps
    model.learn(32, reset_num_timesteps=False)
    assert model.num_timesteps > before


def test_a_negative_rate_of_a_schedule_beyond_its_end_becomes_0_where_it_is_replaced() -> None:
    def falling(cls: Any = PPO) -> Any:
        return cls("MlpPolicy", "CartPole-v1", n_steps=64, learning_rate=lambda remaining: 3e-4 * remaining)

    class KeepsItsRates(PPO):
        def _update_learning_rate(self, optimizers: Any) -> None: ...

    file, model = io.BytesIO(), falling()
    model.learn(100).save(file)
    assert model.policy.optimizer.param_groups[0]["lr"] < 0
    restored = falling()
    load(file.getvalue(), restored)
    assert restored.policy.optimizer.param_groups[0]["lr"] == 0
    assert same(model.policy.state_dict(), restored.policy.state_dict())
    refused(file.getvalue(), falling(KeepsItsRates), "lr is -8.4e-05")


@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_it_restores_what_the_own_loader_restores(name: str) -> None:
    model = new_model(name)
    load(model_file(name), model)
    expected = ALGORITHMS[name][0].load(io.BytesIO(model_file(name)), device="cpu")
    assert same(snapshot(expected)[0], snapshot(model)[0])
    assert expected.num_timesteps == model.num_timesteps


def test_every_field_is_reported_once_with_a_reason() -> None:
    report = load(model_file("SAC"), new_model("SAC", buffer_size=50))
    with zipfile.ZipFile(io.BytesIO(model_file("SAC"))) as archive:
        fields = list(json.loads(archive.read("data")))
    reasons = {each.name: each.reason for each in report.skipped}
    reported = [name for name in (*report.restored, *reasons) if name in fields]
    assert sorted(reported) == sorted(fields)
    assert "pickle" in reasons["policy_class"]
    assert reasons["buffer_size"] == "the model keeps its own; the file has 100"
    assert reasons["ent_coef"] == "the model keeps its own; the file has 'auto'"
    assert "tensorboard_log" in reasons


def test_exploration_follows_the_restored_settings() -> None:
    model = new_model("DQN", exploration_final_eps=0.9)
    load(model_file("DQN"), model)
    assert model.exploration_schedule(0.0) == trained_model("DQN").exploration_schedule(0.0) == 0.05


def test_a_path_may_lack_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(model_file("PPO"))
    for path in (tmp_path / "model.zip", str(tmp_path / "model.zip"), tmp_path / "model"):
        assert "policy" in load_parameters_safely(path, new_model("PPO")).restored
    with pytest.raises(ModelFileError, match=r"model file .*missing: cannot be read"):
        load_parameters_safely(tmp_path / "missing", new_model("PPO"))


def test_hostile_fields_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler")):
        monkeypatch.setattr(module, name, None)
    fields = {name: serialized(HOSTILE) for name in ("policy_class", "gamma", "learning_rate", "new")}
    content = changed_file(model_file("PPO"), data=lambda data: data.update(fields))
    model = new_model("PPO")
    report = load(content, model)
    assert {"gamma", "learning_rate", "new"} <= {each.name for each in report.skipped}
    assert model.gamma != CHANGED["gamma"]


def hostile_weights(members: str = "archive/data.pkl") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(members, HOSTILE)
        archive.writestr("archive/version", "3")
    return file.getvalue()


def compressed(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as after:
        for name in before.namelist():
            after.writestr(name, before.read(name))
    return file.getvalue()


def old_format(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def member(name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(model_file("PPO"))) as archive:
        return archive.read(name)


def group(**changes: Any) -> Callable[[Any], None]:
    return lambda state: state["param_groups"][0].update(changes)


def entry(**changes: Any) -> Callable[[Any], None]:
    return lambda state: state["state"][0].update(changes)


def without(key: str) -> Callable[[Any], None]:
    def change(state: Any) -> None:
        del state[key]

    return change


def wider(state: Any) -> None:
    state["action_net.weight"] = torch.ones(3, 8)


def first(value: float) -> Callable[[Any], Any]:
    return lambda state: next(iter(state.values())).view(-1)[0].fill_(value) is None


def archive_of(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def bytes_for_nothing() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"x": bytearray(5)}, 2))
        archive.writestr("archive/version", "3")
    return file.getvalue()


def nested(start: Any, depth: int, width: int) -> Any:
    """Lists or tuples in each other, of which one object stands in many places."""
    for _ in range(depth):
        start = (start,) * width if isinstance(start, tuple) else [start] * width
    return start


def in_itself(key: str) -> dict[str, Any]:
    table: dict[str, Any] = {}
    table[key] = table
    return table


TWO_PICKLES = {"archive/data.pkl": b"\x80\x02}.", "archive/DATA.PKL": b"\x80\x02}.", "archive/version": b"3"}
WEIGHTS: dict[str, tuple[dict[str, Any], str]] = {
    "another shape": (
        {"policy__pth": wider},
        r"policy: action_net.weight is a tensor \(3, 8\) .* has a tensor \(2, 8\)",
    ),
    "a missing tensor": ({"policy__pth": without("action_net.bias")}, "action_net.bias is missing"),
    "an unknown tensor": ({"policy__pth": lambda s: s.update(x=torch.ones(1))}, "policy: x is unknown"),
    "an integer tensor": (
        {"policy__pth": lambda s: s.update({"action_net.bias": torch.ones(2, dtype=torch.int64)})},
        r"action_net.bias is a tensor \(2,\) of torch.int64, and the model has .* torch.float32",
    ),
    "a tensor without data": (
        {"policy__pth": lambda s: s.update({"action_net.bias": torch.ones(2, device="meta")})},
        "policy.pth was not loaded: unpickling would import 'torch._utils._rebuild_meta_tensor_no_storage'",
    ),
    "a sparse tensor": (
        {"policy__pth": lambda s: s.update({"action_net.bias": torch.ones(2).to_sparse()})},
        "policy.pth was not loaded: unpickling would import 'torch._utils._rebuild_sparse_tensor'",
    ),
    "memory for nothing": ({"policy__pth": bytes_for_nothing()}, "not loaded: unpickling would import .*bytearray"),
    "a number": (
        {"policy__pth": lambda s: s.update({"action_net.bias": 1})},
        "action_net.bias is 1, and the model has a tensor",
    ),
    "a text": (
        {"policy__pth": lambda s: s.update({"action_net.bias": "x"})},
        "action_net.bias is 'x', and the model has a tensor",
    ),
    "lists that double": (
        {"policy__pth": lambda s: s.update(x=nested([], 17, 2))},
        "it has more values than the model",
    ),
    "a table in itself": ({"policy__pth": lambda _: in_itself("x")}, "policy: x: x: .* is unknown"),
    "a table in itself without a name": (
        {"pytorch_variables__pth": lambda _: in_itself("")},
        "maximum recursion depth",
    ),
    "a tuple as name": ({"policy__pth": lambda s: s.update({nested((), 5, 2): 1})}, "policy: a tuple is unknown"),
    "not a number": ({"policy__pth": first(float("nan"))}, "policy: .* is not finite"),
    "infinity": ({"policy__pth": first(float("inf"))}, "policy: .* is not finite"),
    "no table": ({"policy__pth": lambda _: [1]}, "policy: .* is missing"),
    "no weights": ({"policy__pth": None}, "policy: .* is missing"),
    "an unknown state": ({"other__pth": b"x"}, "other is unknown to the model"),
    "hostile weights": ({"policy__pth": hostile_weights()}, "policy.pth was not loaded: .* import 'posix.system'"),
    "compressed weights": ({"policy__pth": compressed(member("policy.pth"))}, "policy.pth is compressed"),
    "old format": ({"policy__pth": old_format({"x": torch.ones(1)})}, "policy.pth cannot be read"),
    "no torch file": ({"policy__pth": b"x"}, "policy.pth cannot be read"),
    "two pickles": ({"policy__pth": archive_of(TWO_PICKLES)}, "policy.pth was not loaded: it has 2 pickles"),
    "another file in the zip format": ({"policy__pth": b"PK\5\6" + bytes(18)}, "policy.pth was not loaded"),
    "a number of torch variables": ({"pytorch_variables__pth": lambda _: [1]}, "pytorch_variables is no table"),
    "an unknown tensor next to the states": (
        {"pytorch_variables__pth": lambda _: {"log_ent_coef": torch.ones(1)}},
        "log_ent_coef is unknown to the model",
    ),
}
OPTIMIZER: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an unknown setting": (group(x=1), "param_groups 0: x is unknown"),
    "gradient ascent": (group(maximize=True), "maximize is True, and the model has False"),
    "another decay": (group(weight_decay=float("nan")), "weight_decay is nan, and the model has 0"),
    "other betas": (group(betas=(2.0, -1.0)), r"betas is \(2.0, -1.0\)"),
    "tuples that double": (group(eps=nested((), 17, 2)), "eps is a tuple, and the model has 1e-05"),
    "a text many times": (group(eps=("x" * 2**12,) * 2**9), "eps is a tuple, and the model has 1e-05"),
    "a rate beyond floats": (group(lr=10**400), "lr is 1000"),
    "a step beyond floats": (entry(step=10**400), "int too large"),
    "a text for a rate": (group(lr="fast"), "lr is 'fast', not a finite number"),
    "true for a rate": (group(lr=True), "lr is True"),
    "no number for a rate": (group(lr=float("nan")), "lr is nan"),
    "an infinite rate": (group(lr=-float("inf")), "lr is -inf"),
    "a number for a switch": (group(amsgrad=0), "amsgrad is 0, and the model has False"),
    "other parameters": (group(params=[0]), "params 1 is missing"),
    "two groups": (lambda s: s["param_groups"].append({}), "policy.optimizer is no state of this optimizer"),
    "a group that is no table": (
        lambda s: s.update(param_groups=[7]),
        "policy.optimizer is no state of this optimizer",
    ),
    "no groups": (without("param_groups"), "policy.optimizer is no state of this optimizer"),
    "more than a state": (lambda s: s.update(x=1), "policy.optimizer: x is unknown"),
    "another shape": (entry(exp_avg=torch.ones(3, 3)), r"state: 0: exp_avg is a tensor \(3, 3\)"),
    "a missing entry": (lambda s: s["state"][0].pop("exp_avg") is None, "state: 0: exp_avg is missing"),
    "an unknown entry": (entry(x=torch.ones(())), "state: 0: x is unknown"),
    "an unknown parameter": (
        lambda s: s["state"].update({99: {}}),
        "state: 99 is unknown to the model",
    ),
    "a named parameter": (lambda s: s["state"].update(x={}), "state: x is unknown"),
    "a text for an entry": (entry(exp_avg="x"), "state: 0: exp_avg is 'x'"),
    "a number for an entry": (entry(exp_avg=1.0), "state: 0: exp_avg is 1.0"),
    "a negative step": (entry(step=torch.tensor(-1.0)), "state: 0: step is not finite, or negative"),
    "a step that is no number": (entry(step=torch.tensor(float("nan"))), "state: 0: step is not finite"),
}
FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "a number beyond floats": ({"learning_rate": 10**400}, "its field learning_rate is 1000"),
    "a text": ({"gamma": "x"}, "its field gamma is 'x', not float from 0.0 to 1.0"),
    "a list": ({"learning_rate": [1]}, r"its field learning_rate is \[1\], not float"),
    "true for a number": ({"gamma": True}, "its field gamma is True, not float"),
    "none": ({"gamma": None}, "its field gamma is None, not float"),
    "a fraction": ({"num_timesteps": 1.5}, "its field num_timesteps is 1.5, not int from 0 to inf"),
    "a number for a truth": ({"normalize_advantage": 1}, "its field normalize_advantage is 1, not bool"),
    "not a number": ({"gamma": float("nan")}, "its field gamma is nan"),
    "infinity": ({"learning_rate": float("inf")}, "its field learning_rate is inf"),
    "beyond the range": ({"gamma": 5.0}, "its field gamma is 5.0"),
    "an empty minibatch": ({"batch_size": 0}, "its field batch_size is 0, not int from 1"),
    "a negative rate": ({"learning_rate": -3.0}, "its field learning_rate is -3.0"),
    "another algorithm": ({"policy_delay": 2}, "its field policy_delay is unknown to the model"),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_that_do_not_fit_are_refused_before_anything_changes(kind: str) -> None:
    members, said = WEIGHTS[kind]
    refused(changed_file(model_file("PPO"), **members), new_model("PPO"), said)


@pytest.mark.parametrize("kind", OPTIMIZER)
def test_optimizer_states_that_do_not_fit_are_refused_before_anything_changes(kind: str) -> None:
    change, said = OPTIMIZER[kind]

    def without_result(state: Any) -> None:
        change(state)

    content = changed_file(model_file("PPO"), policy__optimizer__pth=without_result)
    refused(content, new_model("PPO"), said)


@pytest.mark.parametrize("kind", FIELDS)
def test_fields_that_do_not_fit_are_refused_before_anything_changes(kind: str) -> None:
    values, said = FIELDS[kind]
    refused(changed_file(model_file("PPO"), data=lambda fields: fields.update(values)), new_model("PPO"), said)


@pytest.mark.parametrize(("of", "into"), [("A2C", "PPO"), ("PPO", "A2C"), ("SAC", "TD3"), ("DQN", "QRDQN")])
def test_a_file_of_another_algorithm_is_refused(of: str, into: str) -> None:
    refused(model_file(of), new_model(into), "is unknown to the model|is missing|is a tensor")


def test_an_automatic_coefficient_does_not_fit_a_fixed_one() -> None:
    refused(model_file("SAC"), new_model("SAC, fixed coefficient"), "ent_coef_optimizer is unknown")


def test_another_architecture_is_refused() -> None:
    model = new_model("PPO", policy_kwargs={"net_arch": [9]})
    refused(model_file("PPO"), model, r"is a tensor \(8, 4\) .* has a tensor \(9, 4\)")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read"),
        (b"no zip", "cannot be read"),
        (model_file("PPO")[:-40], "is missing"),
        (changed_file(model_file("PPO"), data=b"{"), "its member data is not JSON"),
    ],
    ids=["empty", "text", "cut", "JSON"],
)
def test_a_broken_file_is_refused(content: bytes, said: str) -> None:
    refused(content, new_model("PPO"), said)


def pickled(content: bytes) -> bytes:
    return archive_of({"archive/data.pkl": b"\x80\x02" + content + b".", "archive/version": b"3"})


def overlapping() -> bytes:
    """Each of three members is all of the file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data/0", bytes(10_000))
        for name in ("archive/data/1", "archive/data/2"):
            archive.filelist.append(copy.copy(archive.filelist[0]))
            archive.filelist[-1].filename = name
    return file.getvalue()


MANY = {str(number): b"" for number in range(20_000)}
COSTLY: dict[str, tuple[dict[str, Any], str]] = {
    "members": (dict.fromkeys(MANY, b""), "it has more members than the model has values"),
    "members with weights": ({"policy__pth": archive_of(MANY)}, "policy.pth has more members than the model"),
    "members at one place": ({"policy__pth": overlapping()}, "policy.pth has members that overlap"),
    "values of fields": (
        {"data": b'{"a":[' + b"[]," * 300_000 + b"[]]}"},
        "data has more than 32 MiB or 500000 values",
    ),
    "bytes of fields": ({"data": b'{"a":"' + b"x" * 2**25 + b'"}'}, "data has more than 32 MiB"),
    "wide letters in fields": ({"data": '{"a":"\U0001f40d"}'.encode()}, "or is no ASCII"),
    "instructions": ({"policy__pth": pickled(b"(" + b"]" * 30_000 + b"t")}, r"has more than \d+ pickle instructions"),
    "bytes of a pickle": (
        {"policy__pth": pickled(b"X\0\0\x10\0" + bytes(2**20))},
        "its pickle ends within a pickle instruction of 1048576 bytes",
    ),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_what_would_cost_more_than_the_model_needs_is_refused(kind: str) -> None:
    members, said = COSTLY[kind]
    refused(changed_file(model_file("PPO"), **members), new_model("PPO"), said)


class Counts(torch.optim.SGD):
    """Counts on its own, and gives its state as plain numbers, with a seed."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr)
        self.param_groups[0]["seed"] = int(torch.randint(1000, ()))

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for each in group["params"]:
                self.state[each]["count"] = self.state[each].get("count", 0) + 1
        return super().step(closure)

    def state_dict(self) -> Any:
        for group in self.param_groups:
            assert all(each.sum().item() is not None for each in group["params"])
        return super().state_dict()


@pytest.mark.parametrize("optimizer", [torch.optim.ASGD, Counts])
def test_an_optimizer_that_looks_at_numbers_is_restored(optimizer: Any) -> None:
    changes = {"policy_kwargs": {"optimizer_class": optimizer}}
    saved, model, file = new_model("PPO", **changes).learn(32), new_model("PPO", **changes), io.BytesIO()
    saved.save(file)
    load(file.getvalue(), model)
    assert same(snapshot(saved)[0], snapshot(model)[0])


MOMENTS: list[tuple[str, str, float]] = [
    ("Adagrad", "sum", -5.0),
    ("Adadelta", "acc_delta", -5.0),
    ("Adamax", "exp_inf", -5.0),
    ("NAdam", "mu_product", 1.5),
    ("ASGD", "eta", -100.0),
    ("ASGD", "mu", 2.0),
    ("Rprop", "step_size", -1.0),
    ("RMSprop", "grad_avg", 1e6),
]


@pytest.mark.parametrize(("optimizer", "moment", "value"), MOMENTS)
def test_moments_with_which_an_optimizer_would_not_descend_are_refused(
    optimizer: str, moment: str, value: float
) -> None:
    options = {"centered": True} if moment == "grad_avg" else {}
    changes = {"policy_kwargs": {"optimizer_class": getattr(torch.optim, optimizer), "optimizer_kwargs": options}}
    saved, file = new_model("PPO", **changes).learn(32), io.BytesIO()
    saved.save(file)
    assert "policy.optimizer" in load(file.getvalue(), new_model("PPO", **changes)).restored

    def change(state: Any) -> None:
        for each in state["state"].values():
            each[moment] = torch.full_like(each[moment], value)

    content = changed_file(file.getvalue(), policy__optimizer__pth=change)
    refused(content, new_model("PPO", **changes), f"{moment} is (not finite, or negative or above 1|larger than)")


def stored(state: Any) -> bytes:
    """An archive of torch without end records of 64 bits."""
    file = io.BytesIO()
    torch.save(state, file)
    with zipfile.ZipFile(file) as archive:
        return archive_of({name: archive.read(name) for name in archive.namelist()})


def test_torch_reads_the_archive_that_was_checked_and_no_other_in_the_same_bytes() -> None:
    state = trained_model("PPO").policy.state_dict()
    other = {name: torch.full_like(each, 7.0) for name, each in state.items()}
    for content in (two_archives(stored(other), stored(state)), old_format(other) + stored(state)):
        assert same(torch.load(io.BytesIO(content), weights_only=True), other)
        model = new_model("PPO")
        load(changed_file(model_file("PPO"), policy__pth=content), model)
        assert same(model.policy.state_dict(), state)


def test_a_member_twice_is_refused() -> None:
    file = io.BytesIO(model_file("PPO"))
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("data", "{}")
    refused(file.getvalue(), new_model("PPO"), "holds a member twice")


def test_a_compressed_file_is_refused_as_its_content_may_have_any_size() -> None:
    refused(compressed(model_file("PPO")), new_model("PPO"), "it is compressed, which save\\(\\) never does")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(ModelFileError, match="is no regular file"):
        load_parameters_safely(tmp_path / "pipe.zip", new_model("PPO"))
    with pytest.raises(ModelFileError, match="is no regular file"):
        load_parameters_safely(tmp_path / "pipe", new_model("PPO"))


def test_a_file_without_fields_restores_the_weights() -> None:
    model = new_model("PPO")
    report = load(changed_file(model_file("PPO"), data=None), model)
    assert set(report.restored) == {"policy", "policy.optimizer"}
    assert report.skipped == ()
    assert same(model.policy.state_dict(), trained_model("PPO").policy.state_dict())


def test_the_tensor_of_the_coefficient_stays_the_one_that_the_optimizer_changes() -> None:
    model = new_model("SAC")
    tensor = model.log_ent_coef
    load(model_file("SAC"), model)
    assert model.log_ent_coef is tensor
    assert model.ent_coef_optimizer.param_groups[0]["params"][0] is tensor


def test_a_fixed_coefficient_is_restored() -> None:
    model = new_model("SAC, fixed coefficient", ent_coef=0.7)
    load(model_file("SAC, fixed coefficient"), model)
    assert (model.ent_coef, round(float(model.ent_coef_tensor), 6)) == (0.1, 0.1)
