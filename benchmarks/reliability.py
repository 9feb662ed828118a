"""What damage does to files and to runs: mutants, processes killed while they save or train, disks that are full.

python -m benchmarks.reliability --output reports/measured/reliability.md
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import xxhash
from sb3_contrib import TQC, TRPO, RecurrentPPO
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import CheckpointError, DistributionalPPO, ResumableEnv, load_checkpoint, save_checkpoint
from rlcore.resume import SaveExactly, load_exact, newest_exact, save_exact
from rlverify.records.errors import ModelFileError
from rlverify.scan import load_parameters_safely
from tests.support.exact_runs import CASES, Case, RecordRows, continued, differences, whole
from tests.support.signalled_run import SignalAt

HEX_DIGITS: Final = 32
"""Of the digest at the end of a file (XXH3, 128 bits)."""
BATCH: Final = 500
"""Mutants that one process loads; its peak memory is compared with that of a process that loads healthy files."""
LIMIT: Final = 256
"""MiB that a file may cost above what a healthy one does."""
SECONDS: Final = 5.0
"""That a reader may take to refuse a file."""
EXECUTES: Final = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")
"""Events of Python's audit that no reader may cause."""
Reader = Callable[[bytes], object]


def trained() -> DistributionalPPO:
    """A small model with every part of the training state."""
    env = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=0, wrapper_class=ResumableEnv))
    model = DistributionalPPO(
        "MlpLstmPolicy",
        env,
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        variance_gradient_scaling=True,
        policy_kwargs={"lstm_hidden_size": 8, "net_arch": [8]},
        seed=0,
        device="cpu",
    )
    return model.learn(64)


def mutant(content: bytes, generator: random.Random) -> bytes:
    """The content with one damage, and a digest that fits it again where the file has one."""
    has_digest = xxhash.xxh3_128(content[:-HEX_DIGITS]).hexdigest().encode() == content[-HEX_DIGITS:]
    body = bytearray(content[:-HEX_DIGITS] if has_digest else content)
    start, length = generator.randrange(len(body)), generator.choice((1, 1, 1, 2, 8, 64))
    match generator.choice(("flip", "set", "cut", "insert", "repeat", "zero")):
        case "flip":
            body[start] ^= 1 << generator.randrange(8)
        case "set":
            body[start : start + length] = generator.randbytes(min(length, len(body) - start))
        case "cut":
            del body[start : start + length]
        case "insert":
            body[start:start] = generator.randbytes(length)
        case "repeat":
            body[start:start] = body[start : start + length]
        case _:
            body[start : start + length] = bytes(min(length, len(body) - start))
    return bytes(body) + (xxhash.xxh3_128(bytes(body)).hexdigest().encode() if has_digest else b"")


def outcome(load: Reader, content: bytes) -> str:
    """``loaded``, ``refused``, ``slow``, or the name of any other error."""
    started = time.monotonic()
    try:
        load(content)
        found = "loaded"
    except (CheckpointError, ModelFileError):
        found = "refused"
    except Exception as error:  # noqa: BLE001  # which others there are is the question
        found = type(error).__name__
    return found if time.monotonic() - started <= SECONDS else "slow"


def in_a_process(work: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Run ``work`` in a forked process; its counts, with its peak memory in MiB under ``peak``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        executed: list[str] = []
        sys.addaudithook(lambda event, _: executed.append(event) if event in EXECUTES else None)
        counts = work()
        counts |= {"executed": len(executed)} if executed else {}
        counts["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        os.write(writing, json.dumps(counts).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"died": BATCH}


def mutants(load: Reader, content: bytes, number: int) -> dict[str, int]:
    """Outcomes of so many mutants, and the largest memory above that of healthy files in MiB under ``peak``."""
    healthy = in_a_process(lambda: Counter(outcome(load, content) for _ in range(20)))
    if healthy.get("loaded") != 20:
        raise SystemExit(f"the healthy file gives {healthy}")
    total: Counter[str] = Counter()
    peak = 0
    for first in range(0, number, BATCH):
        generator = random.Random(first)
        found = in_a_process(lambda g=generator: Counter(outcome(load, mutant(content, g)) for _ in range(BATCH)))  # type: ignore[misc]
        peak = max(peak, found.pop("peak", 0) - healthy["peak"])
        total.update(found)
    return {**total, "peak": peak}


def readers(folder: Path) -> dict[str, tuple[bytes, Reader]]:
    """By name, a healthy file, and what reads such."""
    model, env = trained(), make_vec_env("CartPole-v1", n_envs=2, wrapper_class=ResumableEnv)
    small: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "policy_kwargs": {"net_arch": [8]}, "seed": 0}
    own, exact, theirs = folder / "own.zip", folder / "exact.zip", folder / "theirs.zip"
    model.save(own)
    ppo = PPO("MlpPolicy", env, device="cpu", **small).learn(32)
    save_exact(ppo, exact)
    ppo.save(theirs)
    checkpoint = io.BytesIO()
    parameters: Any = model.get_parameters()
    save_checkpoint(checkpoint, parameters, step=64, performance=1.0)

    def safely(content: bytes) -> None:
        theirs.write_bytes(content)
        load_parameters_safely(theirs, ppo)

    def exactly(content: bytes) -> None:
        exact.write_bytes(content)
        load_exact(exact, env)

    return {
        "DistributionalPPO.load": (
            own.read_bytes(),
            lambda content: DistributionalPPO.load(io.BytesIO(content), device="cpu"),
        ),
        "load_checkpoint": (checkpoint.getvalue(), lambda content: load_checkpoint(io.BytesIO(content))),
        "load_exact": (exact.read_bytes(), exactly),
        "load_parameters_safely": (theirs.read_bytes(), safely),
    }


def kills(folder: Path, number: int) -> dict[str, int]:
    """Kill processes that save to one path again and again; what the path then holds."""
    path = folder / "checkpoint.pt"
    payloads: list[Any] = [
        {"policy": {"w": torch.full((200_000,), float(i))}, "policy.optimizer": {}} for i in range(2)
    ]
    save_checkpoint(path, payloads[0], step=0, performance=0.0)
    generator, found = random.Random(1), Counter[str]()
    for _ in range(number):
        child = os.fork()
        if child == 0:
            while True:
                for step, payload in enumerate(payloads):
                    save_checkpoint(path, payload, step=step, performance=0.0)
        time.sleep(generator.uniform(0.001, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        saved: Any = load_checkpoint(path, require_digest=True)
        whole = torch.equal(saved.data["policy"]["w"], payloads[saved.step]["policy"]["w"])
        found["whole" if whole else "damaged"] += 1
    found["files left for an hour"] = len(list(folder.iterdir())) - 1
    return found


def full_disk(folder: Path, points: int) -> dict[str, int]:
    """Save where a file may grow to ever larger sizes only; what became of the older file."""
    path = folder / "model.zip"
    model = trained()
    model.save(path)
    before = path.read_bytes()
    found: Counter[str] = Counter()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in np.linspace(0, len(before) - 1, points, dtype=int):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
        try:
            model.save(path)
            found["saved"] += 1
        except CheckpointError:
            found["CheckpointError"] += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        found["old file whole"] += path.read_bytes() == before
    return found


CONFIGURATIONS: Final[dict[str, dict[str, Any]]] = {
    "as it is": {},
    "one environment": {"n_envs": 1},
    "three environments": {"n_envs": 3},
    "workers": {"subproc": True},
    "normalised": {"normalize": True},
    "workers, normalised, monitored": {"subproc": True, "normalize": True, "monitored": True},
    "stacked": {"stacked": True},
    "stacked, normalised": {"stacked": True, "normalize": True},
    "gSDE, or wrapped buffers": {"is_special": True},
    "workers, three, stacked": {"subproc": True, "n_envs": 3, "stacked": True},
}
"""In which each of the ten algorithms is interrupted."""


def special(case: Case) -> dict[str, Any]:
    """gSDE where an algorithm has it, and a buffer that saves memory, or n steps, where it has one."""
    settings = dict(case.settings)
    if case.algorithm in (A2C, PPO, TRPO, RecurrentPPO):
        return {"env_id": "Pendulum-v1", "settings": {**settings, "use_sde": True, "sde_sample_freq": 4}}
    if case.algorithm in (SAC, TQC):
        return {"settings": {**settings, "use_sde": True, "use_sde_at_warmup": True}}
    if "buffer_size" in settings:
        return {"settings": {**settings, "n_steps": 3}}
    return {"settings": {**settings, "gamma": 0.9}}


def resumed(case: Case, folder: Path, number: signal.Signals, step: int) -> str:
    """Whether a run that got a signal at a step ends with the bits of one that did not."""
    child = os.fork()
    if child == 0:
        try:
            saving = SaveExactly(folder, every=17)
            callbacks = [saving, RecordRows(), SignalAt(step, number)]
            case.model().learn(case.total, callback=callbacks, log_interval=case.log_interval)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    file = newest_exact(folder)
    if file is None:
        return "no file"
    lost = differences(whole(case)[0], continued(case, file)[0])
    return "the same bits" if not lost else f"differs in {lost[0]}"


def resumes(folder: Path, number: int) -> dict[str, int]:
    """Interrupt runs of every algorithm in every configuration at odd steps, and continue them."""
    generator, found = random.Random(2), Counter[str]()
    pairs = [(name, each) for each in CONFIGURATIONS for name in CASES][:number]
    for name, configuration in pairs:
        more = dict(CONFIGURATIONS[configuration])
        case = CASES[name]._replace(**(special(CASES[name]) if more.pop("is_special", False) else more))
        step = 2 * generator.randrange(20, case.total // 2 - 20) + 1
        kind = generator.choice((signal.SIGKILL, signal.SIGTERM))
        what = resumed(case, folder / f"{name} {configuration}", kind, step)
        found[what if what == "the same bits" else f"{name}, {configuration}, {kind.name} at {step}: {what}"] += 1
    return found


def report(results: dict[str, dict[str, int]], command: str) -> str:
    """The page."""
    lines = [
        "# What damage does to files and runs",
        "",
        f"Written by `{command}`.",
        "",
        "Mutants: one damage to the bytes of a healthy file (a bit flipped; bytes set, cut, inserted, repeated or "
        "zeroed), after which the digest is computed again, so that it fits. A mutant must load, or be refused with "
        f"the error of its reader, within {SECONDS:g} s, and execute nothing by Python's audit. Memory: the peak of a "
        f"process that loads {BATCH} mutants, above one that loads healthy files; at most {LIMIT} MiB are allowed.",
        "",
        "Kills: SIGKILL 1 to 30 ms after a process began to save to one path again and again. Full disk: a limit on "
        "the size of files, from 0 to the file's own size less one byte.",
        "",
        f"Resumes: SIGKILL or SIGTERM at an odd step, for ten algorithms in {len(CONFIGURATIONS)} configurations each "
        f"({'; '.join(CONFIGURATIONS)}). Parameters, optimizers, buffers, environments, random generators and the log "
        "are in the end those of the run that was not interrupted, to the bit.",
        "",
        "| what | outcomes | |",
        "|---|---|---|",
    ]
    for what, counts in results.items():
        shown = ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()) if name != "peak")
        lines.append(f"| {what} | {shown} | {_memory(counts)} |")
    return "\n".join([*lines, ""])


def _memory(counts: dict[str, int]) -> str:
    return f"{max(0, counts['peak'])} MiB" if "peak" in counts else ""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("reports/measured/reliability.md"))
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--full-disk", type=int, default=30)
    parser.add_argument("--resumes", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (content, load) in readers(Path(folder)).items():
            results[f"{given.mutants:,} mutants, `{name}`"] = mutants(load, content, given.mutants)
    with tempfile.TemporaryDirectory() as folder:
        results[f"{given.kills:,} kills during saves"] = kills(Path(folder), given.kills)
    with tempfile.TemporaryDirectory() as folder:
        results[f"{given.full_disk} full disks"] = full_disk(Path(folder), given.full_disk)
    with tempfile.TemporaryDirectory() as folder:
        results[f"{given.resumes} resumes"] = resumes(Path(folder), given.resumes)
    command = f"python -m benchmarks.reliability --mutants {given.mutants} --kills {given.kills}"
    given.output.write_text(
        report(results, f"{command} --full-disk {given.full_disk} --resumes {given.resumes}"), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
