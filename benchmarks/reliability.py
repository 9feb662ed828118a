"""What damage does to files: mutants of their bytes, processes killed while they save, disks that are full.

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
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import CheckpointError, DistributionalPPO, ResumableEnv, load_checkpoint, save_checkpoint

HEX_DIGITS: Final = 32
"""Of the digest at the end of a file (XXH3, 128 bits)."""
BATCH: Final = 500
"""Mutants that one process loads; its peak memory is compared with that of a process that loads healthy files."""
LIMIT: Final = 256
"""MiB that a file may cost above what a healthy one does."""


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
    """The content with one damage, and a digest that fits it again."""
    body = bytearray(content[:-HEX_DIGITS])
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
    return bytes(body) + xxhash.xxh3_128(bytes(body)).hexdigest().encode()


def outcome(load: Callable[[io.BytesIO], object], content: bytes) -> str:
    """``loaded``, ``CheckpointError``, or the name of any other error."""
    try:
        load(io.BytesIO(content))
    except CheckpointError:
        return "CheckpointError"
    except Exception as error:  # noqa: BLE001  # which others there are is the question
        return type(error).__name__
    return "loaded"


def in_a_process(work: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Run ``work`` in a forked process; its counts, with its peak memory in MiB under ``peak``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        counts = work()
        counts["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        os.write(writing, json.dumps(counts).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"died": BATCH}


def mutants(load: Callable[[io.BytesIO], object], content: bytes, number: int) -> dict[str, int]:
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
    found["files left behind"] = len(list(folder.iterdir())) - 1
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


def report(results: dict[str, dict[str, int]], command: str) -> str:
    """The page."""
    lines = [
        "# What damage does to files",
        "",
        f"Written by `{command}`.",
        "",
        "Mutants: one damage to the bytes of a healthy file (a bit flipped; bytes set, cut, inserted, repeated or "
        "zeroed), after which the digest is computed again, so that it fits. A mutant must raise `CheckpointError` or "
        f"load. Memory: the peak of a process that loads {BATCH} mutants, above one that loads healthy files; at most "
        f"{LIMIT} MiB are allowed. Kills: SIGKILL 1 to 30 ms after a process began to save to one path again and "
        "again. Full disk: a limit on the size of files, from 0 to the file's own size less one byte.",
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
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model, file, checkpoint = trained(), io.BytesIO(), io.BytesIO()
    model.save(file)
    parameters: Any = model.get_parameters()
    save_checkpoint(checkpoint, parameters, step=64, performance=1.0)
    results: dict[str, dict[str, int]] = {}
    half = given.mutants // 2
    results[f"{half:,} mutants of a model file, `DistributionalPPO.load`"] = mutants(
        lambda source: DistributionalPPO.load(source, device="cpu"), file.getvalue(), half
    )
    results[f"{half:,} mutants of a checkpoint, `load_checkpoint`"] = mutants(
        load_checkpoint, checkpoint.getvalue(), half
    )
    with tempfile.TemporaryDirectory() as folder:
        results[f"{given.kills:,} kills during saves"] = kills(Path(folder), given.kills)
    with tempfile.TemporaryDirectory() as folder:
        results[f"{given.full_disk} full disks"] = full_disk(Path(folder), given.full_disk)
    command = f"python -m benchmarks.reliability --mutants {given.mutants} --kills {given.kills}"
    given.output.write_text(report(results, f"{command} --full-disk {given.full_disk}"), encoding="utf-8")


if __name__ == "__main__":
    main()
