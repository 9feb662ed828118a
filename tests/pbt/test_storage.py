"""A population that is kept under a URL goes on from the URL alone, and one scheduler at a time writes there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

fsspec: Any = pytest.importorskip("fsspec")

from rlcore import CheckpointError, PBTConfig, SettingError, load_policy  # noqa: E402
from rlcore.pbt import storage  # noqa: E402
from rlcore.pbt.cli import run  # noqa: E402
from rlcore.pbt.population import Population  # noqa: E402
from rlcore.pbt.storage import LEASE_FILE, LEASE_SECONDS, RemoteFolder, storage_of  # noqa: E402
from rlcore.run import train  # noqa: E402
from tests.support.population_on_workers import build, build_model, contents  # noqa: E402
from tests.support.population_run import CONFIG, UPDATES  # noqa: E402

ROOT = Path(__file__).parents[2]


class StoppedError(Exception):
    pass


def stop(_: object) -> None:
    raise StoppedError


def under(url: str) -> dict[str, bytes]:
    """Every file below a URL, by its name there."""
    fs, root = fsspec.core.url_to_fs(url)
    return {name.removeprefix(root).lstrip("/"): fs.cat_file(name) for name in fs.find(root)}


def lease_time(url: str) -> float:
    """When the lease was last refreshed, without a look at other files, which may be put in place at this moment."""
    fs, root = fsspec.core.url_to_fs(url)
    return float(json.loads(fs.cat_file(f"{root}/{LEASE_FILE}"))["time"])


def without_state(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without the state, which names the place of the checkpoints, and the lock, which only a folder has."""
    return {name: content for name, content in files.items() if name not in ("population.pt", "lock")}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("inline")
    build(folder).train(UPDATES)
    return without_state(contents(folder))


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield f"{request.param}://{tmp_path}/population"
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()


def set_lease(url: str, **fields: Any) -> None:
    fs, root = fsspec.core.url_to_fs(url)
    lease = {"owner": "another", "host": "elsewhere", "pid": 7, "time": time.time(), **fields}
    fs.makedirs(root, exist_ok=True)
    fs.pipe_file(f"{root}/{LEASE_FILE}", json.dumps(lease).encode())


class TestUrls:
    def test_a_run_goes_on_from_the_url_alone_after_every_turn(self, url: str, expected: dict[str, bytes]) -> None:
        for _ in range(3):
            with pytest.raises(StoppedError):
                build(url).train(UPDATES, stop)
        population = build(url)
        assert sorted(status.step for status in population.statuses()) == [1, 1, 1]
        result = population.train(UPDATES)
        assert without_state(under(url)) == expected
        assert result.location == f"{url}/members/{result.model_file.name}"
        assert load_policy(result.model_file) is not None
        before = under(url)
        assert build(url).train(UPDATES).table == result.table
        assert under(url) == before
        assert url.encode() in before["population.pt"]

    def test_the_state_is_published_last(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[str] = []
        put = RemoteFolder._put

        def noted(self: RemoteFolder, name: str, content: bytes) -> None:
            put(self, name, content)
            written.append(name)

        monkeypatch.setattr(RemoteFolder, "_put", noted)
        monkeypatch.setattr(storage, "REFRESH_SECONDS", 3600)
        build(url).train(1)
        turn = [f"{kind}/member_0_step_1.{ending}" for kind, ending in (("checkpoints", "pt"), ("members", "zip"))]
        assert written[:2] == ["lineage.jsonl", LEASE_FILE]
        assert written[2:7] == ["population.pt", *turn, LEASE_FILE, "population.pt"]

    def test_what_a_killed_scheduler_began_to_write_is_replaced(self, url: str, expected: dict[str, bytes]) -> None:
        build(url).train(1)
        fs, root = fsspec.core.url_to_fs(url)
        fs.pipe_file(f"{root}/members/member_1_step_2.zip", b"half")
        build(url).train(UPDATES)
        assert without_state(under(url)) == expected

    def test_the_commands_take_a_url(self, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["--env", "CartPole-v1", "--population", "2", "--updates", "2", "--n-envs", "1", "--interval", "1"]
        assert run([*command, "--folder", url]) == 0
        assert f"best model: {url}/members/member_" in capsys.readouterr().out
        pbt = "pbt: {population_size: 2, perturbation_interval: 1, hyperparams: [{name: gamma, values: [0.9, 0.99]}]}"
        algorithm = "algorithm: {n_steps: 16, batch_size: 16, n_epochs: 1}"
        run_file = f"environment: {{id: CartPole-v1, n_envs: 1}}\n{algorithm}\n{pbt}\ntotal_timesteps: 32\n"
        (tmp_path / "run.yaml").write_text(run_file)
        done = CliRunner().invoke(train.app, [str(tmp_path / "run.yaml"), "--output", f"{url}/2", "--device", "cpu"])
        assert done.exit_code == 0, done.stderr
        assert f"best model: {url}/2/members/member_" in done.stdout

    def test_a_checkpoint_dir_of_this_machine_is_refused(self, url: str, tmp_path: Path) -> None:
        config = PBTConfig(**{**CONFIG, "checkpoint_dir": tmp_path})
        with pytest.raises(SettingError, match=r"checkpoint_dir=.* contradict each other, .* from the URL alone"):
            Population(build_model, config, folder=url)

    def test_a_url_that_cannot_be_used_is_one_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(CheckpointError, match=r"nowhere://x: cannot be used .*nowhere"):
            storage_of("nowhere://x")
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(SettingError, match=r"memory://x needs the package fsspec, .*'rlverify\[ray\]'"):
            storage_of("memory://x")

    def test_a_write_that_fails_names_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(CheckpointError, match=r"file/population/lease\.json: cannot be"):
            build(f"file://{tmp_path}/file/population").train(1)


class TestLease:
    def test_a_second_scheduler_is_refused_and_the_first_goes_on(self, url: str, expected: dict[str, bytes]) -> None:
        second = build(url)
        words = rf"process \d+ on .* is training in it, which said so \d+ s ago; wait .* {LEASE_SECONDS} s after"

        def intrude(_: object) -> None:
            with pytest.raises(CheckpointError, match=words):
                second.train(1)

        build(url).train(UPDATES, intrude)
        assert without_state(under(url)) == expected
        assert LEASE_FILE not in under(url)
        with pytest.raises(CheckpointError, match="was changed by another scheduler since this population was made"):
            second.train(1)

    def test_an_old_lease_does_not_count(self, url: str) -> None:
        set_lease(url, time=time.time() - LEASE_SECONDS / 2)
        with pytest.raises(CheckpointError, match="process 7 on elsewhere"):
            build(url).train(1)
        set_lease(url, time=time.time() - LEASE_SECONDS - 1)
        build(url).train(1)

    def test_who_lost_the_lease_publishes_no_state(self, url: str) -> None:
        states: list[bytes] = []

        def lose(_: object) -> None:
            states.append(under(url)["population.pt"])
            set_lease(url)

        with pytest.raises(CheckpointError, match="process 7 on elsewhere is training in it"):
            build(url).train(1, lose)
        assert states == [under(url)["population.pt"]]
        assert json.loads(under(url)[LEASE_FILE])["owner"] == "another"

    def test_the_lease_is_refreshed_while_a_turn_lasts(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "REFRESH_SECONDS", 0.01)
        folder = RemoteFolder(url)
        with folder.locked():
            first = lease_time(url)
            limit = time.monotonic() + 60
            while lease_time(url) == first and time.monotonic() < limit:
                time.sleep(0.01)
            assert lease_time(url) > first

    @pytest.mark.slow
    def test_a_killed_scheduler_keeps_others_out_until_its_lease_is_old(
        self, tmp_path: Path, expected: dict[str, bytes]
    ) -> None:
        url = f"file://{tmp_path}/population"
        command = [sys.executable, "-m", "tests.support.population_on_workers", url, "killed"]
        killed = subprocess.run(command, cwd=ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL
        with pytest.raises(CheckpointError, match=r"process \d+ on .* is training in it"):
            build(url).train(UPDATES)
        set_lease(url, time=time.time() - LEASE_SECONDS - 1)
        population = build(url)
        assert [status.step for status in population.statuses()] == [2, 1, 1]
        population.train(UPDATES)
        assert without_state(under(url)) == expected
