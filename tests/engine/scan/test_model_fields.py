"""The fields of a model file that would execute something are listed, each with what it would import."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
import torch

from rlverify.scan.findings import Place, ScanFinding
from rlverify.scan.unpacking import findings_of_content
from tests.support.model_files import ALGORITHMS, changed_file, model_file, serialized


class Payload:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.system, ("exit 3",)


def found(content: bytes) -> list[ScanFinding]:
    return list(findings_of_content(io.BytesIO(content), Place("m.zip")))


def fields_of_file(content: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return json.loads(archive.read("data"))


@pytest.mark.parametrize("name", ["PPO", "SAC", "TQC", "RecurrentPPO"])
def test_the_fields_of_a_real_file_are_listed(name: str) -> None:
    findings = found(model_file(name))
    assert {each.rule for each in findings} == {"pickle-import"}
    fields = fields_of_file(model_file(name))
    pickled = {key for key, value in fields.items() if isinstance(value, dict) and ":serialized:" in value}
    listed = {each.field.removeprefix("data:") for each in findings}
    assert {"policy_class", "observation_space", "action_space", "lr_schedule"} <= listed <= pickled
    safe = pickled - listed
    assert safe <= {"target_entropy", "_last_obs", "_last_original_obs", "_last_episode_starts", "ep_success_buffer"}
    assert all("load_parameters_safely" in each.remedy for each in findings)


def test_a_message_names_what_a_field_imports() -> None:
    by_field = {each.field: each.message for each in found(model_file("PPO"))}
    assert by_field["data:policy_class"] == (
        "unpickling would import stable_baselines3.common.policies.ActorCriticPolicy"
    )


@pytest.mark.parametrize("field", ["lr_schedule", "policy_class", "a new one", "ü\x1b"])
def test_a_hostile_field_is_an_error(field: str) -> None:
    hostile = changed_file(
        model_file("PPO"), data=lambda fields: fields.update({field: serialized(pickle.dumps(Payload()))})
    )
    (error,) = (each for each in found(hostile) if each.severity == "error")
    assert error.rule == "pickle-dangerous-import"
    assert error.field == f"data:{field.encode('ascii', 'backslashreplace').decode()}".replace("\x1b", "\\x1b")


def test_a_function_with_code_in_the_file_is_an_error() -> None:
    pickled = cloudpickle.dumps(lambda progress: progress)
    hostile = changed_file(model_file("PPO"), data=lambda fields: fields.update(lr_schedule=serialized(pickled)))
    assert [each.field for each in found(hostile) if each.severity == "error"] == ["data:lr_schedule"]


def test_hostile_weights_are_an_error() -> None:
    file = io.BytesIO()
    torch.save({"w": Payload()}, file)
    hostile = changed_file(model_file("PPO"), policy__pth=file.getvalue())
    assert [each.field for each in found(hostile) if each.severity == "error"] == ["policy.pth/archive/data.pkl"]


@pytest.mark.parametrize(
    ("data", "field", "said"),
    [
        (b"{", "data", "is not JSON"),
        (b'{"x": ' * 200_000, "data", "is not JSON"),
        (b'{"x": {":serialized:": 7}}', "data:x", "is not base64"),
        (b'{"x": {":serialized:": "abcde"}}', "data:x", "is not base64"),
        (b'{"x": {":serialized:": ""}}', "data:x", "ends before its pickle does"),
    ],
)
def test_a_broken_field_is_one_finding(data: bytes, field: str, said: str) -> None:
    (finding,) = found(changed_file(model_file("PPO"), data=data))
    assert (finding.rule, finding.field) == ("unreadable-file", field)
    assert said in finding.message


@pytest.mark.parametrize("cut", [1, 22, 40, 500])
def test_a_model_file_that_was_cut_off_is_reported(cut: int) -> None:
    """Though it still ends like an archive, as its last weights do."""
    assert "unreadable-file" in [each.rule for each in found(model_file("PPO")[:-cut])]


@pytest.mark.parametrize("packed", [gzip.compress, lambda model: zipped("ppo/CartPole-v1.zip", model)])
def test_fields_are_found_in_a_model_file_in_an_archive(packed: Callable[[bytes], bytes]) -> None:
    places = [each.field for each in found(packed(model_file("PPO")))]
    assert any(each.endswith("data:policy_class") for each in places)


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def test_data_of_another_zip_is_not_taken_for_fields() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", b"numbers")
    assert found(file.getvalue()) == []


def test_fields_are_found_without_the_version_and_behind_spaces() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", " " * 5000 + json.dumps({"x": serialized(pickle.dumps(Payload()))}))
    assert [each.field for each in found(file.getvalue())] == ["data:x"]


def test_base64_is_decoded_as_leniently_as_stable_baselines3_does() -> None:
    encoded = serialized(pickle.dumps(Payload()))[":serialized:"]
    data = json.dumps({"x": {":serialized:": "-".join(encoded)}}).encode()
    assert [each.rule for each in found(changed_file(model_file("PPO"), data=data))] == ["pickle-dangerous-import"]


def test_the_algorithms_of_both_packages_are_covered() -> None:
    assert {name.partition(",")[0] for name in ALGORITHMS} >= {"PPO", "A2C", "DQN", "SAC", "TD3"}
