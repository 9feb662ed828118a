"""A population that is kept under a URL goes on from the URL alone, and one scheduler at a time writes there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

fsspec: Any = pytest.importorskip("fsspec")

from rlcore import CheckpointError, PBTConfig, SettingError, load_policy  # noqa: E402
from rlcore.pbt import files, storage  # noqa: E402
from rlcore.pbt.cli import run  # noqa: E402
from rlcore.pbt.population import Population  # noqa: E402
from rlcore.pbt.storage import LEASE_FILE, LEASE_SECONDS, RemoteFolder, storage_of  # noqa: E402
from rlcore.run import train  # noqa: E402
from tests.support.population_on_workers import build, build_model, contents  # noqa: E402
from tests.support.population_run import CONFIG, UPDATES  # noqa: E402

ROOT = Path(__file__).parents[2]


class StoppedError(Exception):
    pass


class ClientError(Exception):
    """As clients of storage raise them, which are no OSError."""


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
        begin, end = [LEASE_FILE], [LEASE_FILE, "population.pt"]
        assert written[:9] == [*begin, "lineage.jsonl", *end, *begin, *turn, *end][:9]

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
        for url in ("memory://", "memory:///", "file://tmp/x", "local://x"):
            with pytest.raises(CheckpointError, match=f"{url}: names no folder; give one such as s3://"):
                storage_of(url)
        for url in ("simplecache::memory://x", "blockcache::s3://bucket/x", "cached::memory://x"):
            with pytest.raises(CheckpointError, match=f"{url}: cannot be used, as a cache shows the lease"):
                storage_of(url)
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(SettingError, match=r"memory://x needs the package fsspec, .*'rlverify\[ray\]'"):
            storage_of("memory://x")

    def test_a_missing_model_is_named_by_its_url(self, url: str) -> None:
        build(url).train(1)
        fs, root = fsspec.core.url_to_fs(url)
        (model,) = fs.glob(f"{root}/members/member_0_*")
        fs.rm_file(model)
        with pytest.raises(CheckpointError, match=f"^{url}/members/member_0_step_1.zip: .* bring it back"):
            build(url)
        assert LEASE_FILE not in under(url)

    def test_a_population_of_other_settings_is_named_by_its_url(self, url: str) -> None:
        Population(build_model, PBTConfig(**CONFIG), folder=url).train(1)
        other = PBTConfig(**{**CONFIG, "perturbation_interval": 3})
        with pytest.raises(SettingError, match=f"perturbation_interval=3, and the population in {url}/"):
            Population(build_model, other, folder=url)

    def test_a_file_that_is_gone_already_needs_no_removing(self, url: str, expected: dict[str, bytes]) -> None:
        population = build(url)
        population.train(1)
        fs, root = fsspec.core.url_to_fs(url)
        for name in fs.glob(f"{root}/members/*"):
            fs.rm_file(name)
        population.train(UPDATES)
        assert without_state(under(url)) == expected

    def test_moves_that_do_not_replace_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        url = f"file://{tmp_path}/population"
        file_system: Any = fsspec.get_filesystem_class("file")
        move = file_system.mv
        monkeypatch.setattr(file_system, "mv", lambda fs, old, new: None if fs.exists(new) else move(fs, old, new))
        with pytest.raises(CheckpointError, match=r"lease.json: cannot be written \(a move there does not replace"):
            build(url).train(1)
        assert "population.pt" not in under(url)

    def test_a_write_that_fails_names_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(CheckpointError, match=r"file/population: cannot be made a folder"):
            build(f"file://{tmp_path}/file/population").train(1)


class TestLease:
    def test_a_second_scheduler_is_refused_and_the_first_goes_on(self, url: str, expected: dict[str, bytes]) -> None:
        second = build(url)
        words = rf"process \d+ on .* is training in it, which said so \d+ s ago; wait .* {LEASE_SECONDS} s after"
        if url.startswith("file"):
            words = "another process is training in it"

        def intrude(_: object) -> None:
            with pytest.raises(CheckpointError, match=words):
                second.train(1)

        build(url).train(UPDATES, intrude)
        assert without_state(under(url)) == expected
        assert LEASE_FILE not in under(url)
        with pytest.raises(CheckpointError, match="was changed by another scheduler since this population was made"):
            second.train(1)

    def test_who_builds_while_another_trains_is_told_so(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the looks at the state and at the models, the other commits and removes the models."""
        for folder in (url, tmp_path / "here"):
            build(folder).train(1)
            trainer = build(folder)
            read = files.read_state

            def read_and_train(path: Path, trainer: Population = trainer, read: Any = read) -> Any:
                state = read(path)
                monkeypatch.setattr(files, "read_state", read)
                with suppress(StoppedError):
                    trainer.train(UPDATES, stop_after_first)
                return state

            def stop_after_first(status: Any) -> None:
                if status.step == 2:
                    raise StoppedError

            monkeypatch.setattr(files, "read_state", read_and_train)
            if folder == url:  # its copy is as it was
                build(folder)
            else:
                with pytest.raises(CheckpointError, match="was changed by another scheduler"):
                    build(folder)

    def test_ctrl_c_while_an_old_lease_is_taken_over_gives_it_back(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(_: float) -> None:
            raise KeyboardInterrupt

        set_lease(url, time=time.time() - LEASE_SECONDS - 1)
        population = build(url)
        monkeypatch.setattr(storage.time, "sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            population.train(1)
        assert LEASE_FILE not in under(url)

    def test_a_lease_that_cannot_be_given_back_hides_no_error(
        self, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def unreachable(*_: Any, **_more: Any) -> None:
            raise ClientError("no route")

        def cut(_: object) -> None:
            monkeypatch.setattr(type(population._storage._fs), "cat_file", unreachable)  # type: ignore[attr-defined]
            raise KeyboardInterrupt

        population = build(url)
        with pytest.raises(KeyboardInterrupt):
            population.train(1, cut)
        assert "the lease could not be given back" in caplog.text

    def test_a_path_and_a_url_of_one_folder_keep_each_other_out(self, tmp_path: Path) -> None:
        names: list[str | Path] = [tmp_path / "population", f"file://{tmp_path}/population"]
        for first, second in (names, reversed(names)):
            other = build(second)

            def intrude(_: object, other: Population = other) -> None:
                with pytest.raises(CheckpointError, match="another process is training in it"):
                    other.train(3)
                raise StoppedError

            with pytest.raises(StoppedError):
                build(first).train(UPDATES, intrude)
            with pytest.raises(CheckpointError, match="was changed by another scheduler"):
                other.train(3)
            build(second).train(1)
            assert (tmp_path / "population" / "lock").exists()

    def test_a_folder_that_another_has_trained_in_since_is_refused(self, tmp_path: Path) -> None:
        first, second = build(tmp_path / "population"), build(tmp_path / "population")
        first.train(2)
        before = contents(tmp_path / "population")
        with pytest.raises(CheckpointError, match="was changed by another scheduler since this population was made"):
            second.train(1)
        assert contents(tmp_path / "population") == before
        assert [status.step for status in first.train(3).table] == [3, 3, 3]

    def test_an_old_lease_does_not_count(self, url: str) -> None:
        set_lease(url, time=time.time() - LEASE_SECONDS / 2)
        with pytest.raises(CheckpointError, match="process 7 on elsewhere"):
            build(url).train(1)
        set_lease(url, time=time.time() - LEASE_SECONDS - 1)
        build(url).train(1)

    @pytest.mark.parametrize("turns", [1, 3])
    def test_who_lost_the_lease_publishes_nothing(self, turns: int, url: str) -> None:
        """After the first turn models would follow, after the third the lineage of the exploits."""
        states: list[dict[str, bytes]] = []

        def lose(_: object) -> None:
            states.append({})
            if len(states) == turns:
                set_lease(url)
                states[-1] = under(url)

        with pytest.raises(CheckpointError, match="process 7 on elsewhere is training in it"):
            build(url).train(UPDATES, lose)
        assert len(states) == turns
        assert states[-1] == under(url)

    def test_of_two_that_take_an_old_lease_one_gets_it(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "SETTLE_SECONDS", 1.0)
        set_lease(url, time=time.time() - LEASE_SECONDS - 1)
        both_have_looked, write = threading.Barrier(2), RemoteFolder._write_lease

        def write_together(self: RemoteFolder, *, is_new: bool) -> None:
            both_have_looked.wait(60)
            write(self, is_new=is_new)

        monkeypatch.setattr(RemoteFolder, "_write_lease", write_together)
        outcomes: list[str] = []

        def take(folder: RemoteFolder) -> None:
            try:
                folder._take_lease()
            except CheckpointError:
                outcomes.append("refused")
            else:
                outcomes.append("taken")

        threads = [threading.Thread(target=take, args=(RemoteFolder(url),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["refused", "taken"]

    def test_an_error_of_the_client_is_named_and_ends_no_refreshing(
        self, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(storage, "REFRESH_SECONDS", 0.01)
        folder, failed = RemoteFolder(url), threading.Event()
        file_system: Any = type(folder._fs)
        pipe_file = file_system.pipe_file

        def fail_once(self: Any, *arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is not threading.main_thread() and not failed.is_set():
                failed.set()
                raise ClientError("no route")
            return pipe_file(self, *arguments, **options)

        monkeypatch.setattr(file_system, "pipe_file", fail_once)
        with folder.locked():
            assert failed.wait(60)
            first, limit = lease_time(url), time.monotonic() + 60
            while lease_time(url) == first and time.monotonic() < limit:
                time.sleep(0.01)
            assert lease_time(url) > first
        assert "lease.json: cannot be written (no route)" in caplog.text

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
