"""SaveExactly: when it saves, which files stay, and what signals do."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env

from rlcore import ResumableEnv
from rlcore.errors import CallOrderError, CheckpointError, SettingError
from rlcore.resume import SaveExactly, continue_learning, load_exact, newest_exact
from rlcore.resume.callback import SIGNALS, saved_steps
from tests.core.resume.small_models import Stateless, ppo, sac
from tests.support.environments import make_vec
from tests.support.exact_runs import CASES, VARIANTS, StopAt, continued, differences, finished, whole

ALL = {**CASES, **VARIANTS}
NEVER = 10**6


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    before = [signal.getsignal(each) for each in SIGNALS]
    yield
    found = [signal.getsignal(each) for each in SIGNALS]
    signal.signal(signal.SIGINT, former)
    assert found == before


def run_with_signal(name: str, folder: Path, number: int, every: int = NEVER) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.signalled_run", name, str(folder), str(int(number)), str(every)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, start_new_session=True, check=False)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("PPO", signal.SIGTERM),
        pytest.param("DQN", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("SAC with gSDE", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_before_the_next_rollout_and_the_run_continues_exactly(
    name: str, number: int, tmp_path: Path
) -> None:
    case = ALL[name]
    expected, _ = whole(case)

    ended = run_with_signal(name, tmp_path, number)

    assert (ended.returncode, ended.stderr) == (0, "")
    (step,) = saved_steps(tmp_path, "exact")
    assert case.cut < step < case.cut + 33
    assert ended.stdout.split() == [str(int(number)), str(step + case.n_envs)]
    fingerprint, _ = continued(case, tmp_path / f"exact_{step}.zip")
    assert differences(expected, fingerprint) == []


def test_a_killed_run_continues_from_its_newest_file(tmp_path: Path) -> None:
    expected, _ = whole(CASES["PPO"])

    ended = run_with_signal("PPO", tmp_path, signal.SIGKILL, every=31)

    assert ended.returncode == -signal.SIGKILL
    newest = newest_exact(tmp_path)
    assert newest == tmp_path / "exact_64.zip"
    assert differences(expected, continued(CASES["PPO"], newest)[0]) == []


def test_a_run_that_goes_on_does_not_save_at_once(tmp_path: Path) -> None:
    ppo().learn(32, callback=SaveExactly(tmp_path, every=NEVER))
    file = tmp_path / "exact_32.zip"
    before = file.stat().st_mtime_ns
    saving = SaveExactly(tmp_path, every=32, keep=9)
    continue_learning(load_exact(file, make_vec()), saving, total_timesteps=80)
    assert (saved_steps(tmp_path, "exact"), file.stat().st_mtime_ns) == ([32, 64, 80], before)


class Numbered(Stateless, gym.Wrapper[Any, Any, Any, Any]):
    """Gives a number that no file holds."""

    def get_state(self) -> Any:
        return {"count": np.int64(3)}


class Call(BaseCallback):
    """Calls something at a timestep."""

    def __init__(self, step: int, *actions: Any) -> None:
        super().__init__()
        self.step, self.actions = step, actions

    def _on_step(self) -> bool:
        if self.num_timesteps == self.step:
            for action in self.actions:
                action()
        return True


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_second_signal_interrupts_at_once(tmp_path: Path) -> None:
    model = ppo()

    with pytest.raises(KeyboardInterrupt):
        model.learn(64, callback=[SaveExactly(tmp_path, every=NEVER), Call(10, interrupt, interrupt)])

    assert model.num_timesteps == 10
    assert saved_steps(tmp_path, "exact") == []


def test_after_a_training_that_failed_a_signal_does_what_it_did_before(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("the environment broke")

    with pytest.raises(RuntimeError, match="the environment broke"):
        ppo().learn(64, callback=[SaveExactly(tmp_path, every=NEVER), Call(10, fail)])

    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_two_of_them_hear_a_signal_and_leave_the_handlers_as_they_were(tmp_path: Path) -> None:
    both = [SaveExactly(tmp_path / name, every=NEVER) for name in ("recent", "rare")]

    for total in (64, 96):
        model = ppo().learn(total, callback=[*both, Call(10, interrupt)])
        assert [each.stopped_by for each in both] == [signal.SIGINT] * 2
        assert {tuple(saved_steps(each.folder, "exact")) for each in both} == {(16,)}
        assert model.num_timesteps < 64
        for each in both:
            (each.folder / "exact_16.zip").unlink()
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_a_model_that_a_signal_has_stopped_does_not_train_on(tmp_path: Path) -> None:
    model = ppo().learn(64, callback=[SaveExactly(tmp_path, every=NEVER), Call(10, interrupt)])
    with pytest.raises(CallOrderError, match=r"continue with load_exact and the newest file"):
        model.learn(64, callback=SaveExactly(tmp_path, every=NEVER), reset_num_timesteps=False)
    assert saved_steps(tmp_path, "exact") == [16]


def test_a_training_inside_of_another_leaves_its_handlers_to_that(tmp_path: Path) -> None:
    outer = SaveExactly(tmp_path / "outer", every=NEVER)
    inside = Call(4, lambda: ppo().learn(16, callback=SaveExactly(tmp_path / "inner", every=NEVER)))
    ppo().learn(64, callback=[outer, inside, Call(10, interrupt)])
    assert (outer.stopped_by, saved_steps(tmp_path / "outer", "exact")) == (signal.SIGINT, [16])


def test_signals_that_are_ignored_or_not_wanted_stay_as_they_are(tmp_path: Path) -> None:
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        model = ppo().learn(64, callback=[SaveExactly(tmp_path / "a", every=NEVER), Call(10, interrupt)])
        assert model.num_timesteps == 64
    finally:
        signal.signal(signal.SIGINT, former)


def test_it_saves_in_another_thread_where_no_handler_can_be_installed(tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: ppo().learn(32, callback=SaveExactly(tmp_path, every=16)))
    thread.start()
    thread.join(60)

    assert saved_steps(tmp_path, "exact") == [16, 32]


def test_it_saves_at_the_first_rollout_after_every_so_many_timesteps_and_keeps_the_last_files(tmp_path: Path) -> None:
    (tmp_path / "other_16.zip").write_bytes(b"of somebody else")
    seen: list[list[int]] = []

    ppo().learn(
        112,
        callback=[
            SaveExactly(tmp_path, every=17, keep=2),
            Call(66, lambda: seen.append(saved_steps(tmp_path, "exact"))),
        ],
    )

    assert seen == [[32, 64]]
    assert saved_steps(tmp_path, "exact") == [96, 112]
    assert newest_exact(tmp_path) == tmp_path / "exact_112.zip"
    assert (tmp_path / "other_16.zip").exists()
    assert newest_exact(tmp_path / "nothing") is None


def test_the_end_is_saved_unless_a_rollout_was_stopped_in_its_middle(tmp_path: Path) -> None:
    model = ppo()
    model.learn(32, callback=SaveExactly(tmp_path / "ended", every=NEVER))
    expected = finished(model)
    ppo().learn(32, callback=[SaveExactly(tmp_path / "stopped", every=NEVER), StopAt(20)])

    ended = newest_exact(tmp_path / "ended")
    assert ended is not None
    assert differences(expected, finished(load_exact(ended, make_vec()))) == []
    assert newest_exact(tmp_path / "stopped") is None


@pytest.mark.parametrize("make", [ppo, sac])
def test_saving_changes_nothing(make: Any, tmp_path: Path) -> None:
    expected = finished(make().learn(40))
    assert differences(expected, finished(make().learn(40, callback=SaveExactly(tmp_path, every=1)))) == []


@pytest.mark.parametrize("make", [ppo, sac])
def test_a_policy_that_draws_noise_can_be_pickled_meanwhile(make: Any, tmp_path: Path) -> None:
    model, pickled = make(make_vec("Pendulum-v1"), use_sde=True), []
    call = Call(4, lambda: pickled.append(pickle.dumps(model.policy)))
    model.learn(16, callback=[SaveExactly(tmp_path, every=1), call])
    drawing: Any = model.policy if make is ppo else model.actor
    noise = drawing.action_dist.exploration_mat.clone()

    policy: Any = pickle.loads(pickled[0])  # noqa: S301
    getattr(policy, "actor", policy).reset_noise()

    assert drawing.action_dist.exploration_mat.equal(noise)
    assert len(pickled[0]) < 10**5


def test_files_of_another_run_are_not_mixed_up(tmp_path: Path) -> None:
    ppo().learn(32, callback=SaveExactly(tmp_path, every=16))
    model = ppo()

    with pytest.raises(CheckpointError, match=r"exact_32\.zip: is of a later timestep than 0.*another run"):
        model.learn(32, callback=SaveExactly(tmp_path, every=16))

    assert model.num_timesteps == 0
    model.learn(32, callback=SaveExactly(tmp_path, every=16, name="second"))
    assert saved_steps(tmp_path, "second") == [16, 32]


def test_a_file_that_is_damaged_or_has_another_name_is_passed_over(tmp_path: Path) -> None:
    ppo().learn(32, callback=SaveExactly(tmp_path, every=16))
    for name in ("exact_048.zip", "exact_\N{FULLWIDTH DIGIT NINE}9.zip"):
        shutil.copy(tmp_path / "exact_32.zip", tmp_path / name)
    (tmp_path / "exact_64.zip").mkdir()
    assert newest_exact(tmp_path) == tmp_path / "exact_32.zip"

    os.truncate(tmp_path / "exact_32.zip", 1000)
    assert newest_exact(tmp_path) == tmp_path / "exact_16.zip"
    model = load_exact(tmp_path / "exact_16.zip", make_vec())
    continue_learning(model, SaveExactly(tmp_path, every=16))
    assert newest_exact(tmp_path) == tmp_path / "exact_32.zip"


def test_files_of_which_not_one_can_be_loaded_are_not_taken_for_an_empty_folder(tmp_path: Path) -> None:
    for step in (16, 32):
        (tmp_path / f"exact_{step}.zip").write_bytes(b"cut off")
    with pytest.raises(
        CheckpointError, match=r"exact_32\.zip: is the newest of 2 files .* all of which fail to load; restore"
    ):
        newest_exact(tmp_path)
    assert newest_exact(tmp_path, "other") is None


def test_damaged_files_of_later_timesteps_do_not_count_among_those_that_stay(tmp_path: Path) -> None:
    for step in (48, 64):
        (tmp_path / f"exact_{step}.zip").write_bytes(b"cut off")
    ppo().learn(32, callback=SaveExactly(tmp_path, every=16, keep=1))
    assert saved_steps(tmp_path, "exact") == [32, 48, 64]
    assert newest_exact(tmp_path) == tmp_path / "exact_32.zip"


def test_a_run_that_another_process_has_overtaken_meanwhile_is_refused(tmp_path: Path) -> None:
    other = Call(4, lambda: ppo().learn(64, callback=SaveExactly(tmp_path, every=16)))
    with pytest.raises(CheckpointError, match=r"exact_64\.zip: is of a later timestep than 0.*another run"):
        ppo().learn(32, callback=[SaveExactly(tmp_path, every=16), other])
    assert saved_steps(tmp_path, "exact") == [48, 64]


def test_what_killed_writers_of_this_name_left_is_removed(tmp_path: Path) -> None:
    left, of_another = (tmp_path / f".{name}_40.zip.0123456789abcdef.tmp" for name in ("exact", "exact_2"))
    for path in (left, of_another):
        path.write_bytes(b"x")
    ppo().learn(16, callback=SaveExactly(tmp_path, every=16))
    assert [path.exists() for path in (left, of_another)] == [False, True]


def test_a_folder_or_a_path_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / ".exact.lock").mkdir(parents=True)
    assert newest_exact(tmp_path / "file") is None
    for name, message in (("file", "file: is not a folder"), ("folder", "exact.lock: cannot be locked")):
        with pytest.raises(CheckpointError, match=message):
            ppo().learn(16, callback=SaveExactly(tmp_path / name, every=16))


def test_a_second_training_of_the_process_does_not_take_the_lock_of_one_that_goes_on(tmp_path: Path) -> None:
    def intrude() -> None:
        with pytest.raises(CheckpointError, match="another process is training in it"):
            ppo().learn(16, callback=SaveExactly(tmp_path, every=16))

    ppo().learn(64, callback=[SaveExactly(tmp_path, every=16), Call(40, intrude, intrude)])


HOLDS = """
import sys
from pathlib import Path
from rlcore.checkpoint.container import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holding(lock: Path) -> subprocess.Popen[str]:
    """A process that saves under a name."""
    command = [sys.executable, "-c", HOLDS, str(lock)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def test_two_processes_never_save_under_one_name(tmp_path: Path) -> None:
    with holding(tmp_path / ".exact.lock") as other:
        model = ppo()
        with pytest.raises(CheckpointError, match="another process is training in it; wait for it"):
            model.learn(32, callback=SaveExactly(tmp_path, every=16))
        assert model.num_timesteps == 0
        ppo().learn(32, callback=SaveExactly(tmp_path, every=16, name="second"))
        other.kill()

    ppo().learn(32, callback=SaveExactly(tmp_path, every=16))
    with holding(tmp_path / ".exact.lock") as other:  # which the end of a training has let go
        other.kill()
    assert (saved_steps(tmp_path, "exact"), saved_steps(tmp_path, "second")) == ([16, 32], [16, 32])
    assert sorted(each.name for each in tmp_path.glob(".*")) == [".exact.lock", ".second.lock"]  # and no temporary file


def test_a_process_that_begins_to_save_meanwhile_ends_the_other_at_its_first_file(tmp_path: Path) -> None:
    others: list[subprocess.Popen[str]] = []
    begin = Call(4, lambda: others.append(holding(tmp_path / ".exact.lock")))
    with pytest.raises(CheckpointError, match="another process is training in it"):
        ppo().learn(32, callback=[SaveExactly(tmp_path, every=16), begin])
    others[0].communicate()
    assert saved_steps(tmp_path, "exact") == []


def test_a_callback_whose_training_failed_holds_no_other_up(tmp_path: Path) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    failed, handlers = SaveExactly(tmp_path, every=16), [(each, signal.getsignal(each)) for each in SIGNALS]
    with pytest.raises(ZeroDivisionError):
        ppo().learn(64, callback=[failed, Call(40, fail)])
    path = newest_exact(tmp_path)
    assert path is not None
    continue_learning(load_exact(path, make_vec()), SaveExactly(tmp_path, every=16))
    assert saved_steps(tmp_path, "exact") == [48, 64]
    for each in handlers:
        signal.signal(*each)


def test_what_can_be_known_at_the_start_is_refused_there(tmp_path: Path) -> None:
    model = ppo(make_vec_env("CartPole-v1", 2, wrapper_class=lambda env: ResumableEnv(Numbered(env))))
    with pytest.raises(CheckpointError, match=r"exact_0\.zip: .*\['count'\] is a numpy.int64"):
        model.learn(32, callback=SaveExactly(tmp_path, every=16))
    assert model.num_timesteps == 0


def test_a_folder_stays_where_it_was_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saving = SaveExactly("saved", every=16)
    (tmp_path / "other").mkdir()
    ppo().learn(32, callback=[saving, Call(4, lambda: monkeypatch.chdir(tmp_path / "other"))])
    assert saved_steps(tmp_path / "saved", "exact") == [16, 32]


def test_it_is_no_child_of_another_callback(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="EveryNTimesteps does not report rollouts"):
        ppo().learn(32, callback=EveryNTimesteps(8, SaveExactly(tmp_path, every=16)))


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
@pytest.mark.parametrize("name", ["every", "keep"])
def test_a_callback_that_would_keep_nothing_is_refused(name: str, wrong: object, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=rf"{name}={wrong} is no integer of at least 1"):
        SaveExactly(tmp_path, **{"every": 8, name: wrong})  # type: ignore[arg-type]
