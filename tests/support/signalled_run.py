"""A run that gets a signal: ``python -m tests.support.signalled_run CASE FOLDER SIGNAL EVERY``."""

from __future__ import annotations

import os
import signal
import sys

from stable_baselines3.common.callbacks import BaseCallback

from rlcore.resume import SaveExactly
from tests.support.exact_runs import CASES, VARIANTS


class SignalAt(BaseCallback):
    """Sends a signal to all processes of the run, as a terminal does, or SIGTERM and SIGKILL to the main one alone."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__()
        self.step, self.number = step, number

    def _on_step(self) -> bool:
        if self.step <= self.num_timesteps < self.step + self.training_env.num_envs:
            if self.number == signal.SIGINT:
                os.killpg(os.getpgrp(), self.number)
            else:
                os.kill(os.getpid(), self.number)
        return True


def main(name: str, folder: str, number: str, every: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    case = {**CASES, **VARIANTS}[name]
    saving = SaveExactly(folder, every=int(every))
    former = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    model = case.model()
    model.learn(case.total, callback=[saving, SignalAt(case.cut, int(number))], log_interval=case.log_interval)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == former
    print(saving.stopped_by, model.num_timesteps)  # noqa: T201
    env = model.get_env()
    assert env is not None
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
