"""Saving and loading a checkpoint, compared with torch.save, an atomic write and torch.load; and the memory of it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash

from benchmarks.side_by_side import Target, compare, profile, table
from benchmarks.tensors import SIZES
from rlcore.checkpoint.container import load_container, save_container

ROUNDS = dict(zip(SIZES, (60, 40, 15), strict=True))


def payload(size: str) -> dict[str, Any]:
    """A network's state."""
    return {"policy": {str(i): torch.randn(shape) for i, shape in enumerate(SIZES[size])}}


def save_and_load(path: Path, content: dict[str, Any]) -> None:
    """As this project does it."""
    save_container(path, content)
    load_container(path)


def save_and_load_with_torch(path: Path, content: dict[str, Any]) -> None:
    """Written to a sibling, synced, renamed and loaded, and nothing else."""
    _write_atomically(path, content)
    torch.load(path, weights_only=True)


def _write_atomically(path: Path, content: dict[str, Any]) -> None:
    new = path.with_suffix(".tmp")
    with new.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


@pytest.mark.parametrize("size", SIZES)
def bench_save_and_load(benchmark: Any, size: str, tmp_path: Path) -> None:
    content, path, written = payload(size), tmp_path / "checkpoint", tmp_path / "floor"

    def floor() -> None:
        _write_atomically(written, content)
        xxhash.xxh3_128(written.read_bytes())
        read = written.read_bytes()
        xxhash.xxh3_128(read)
        torch.load(io.BytesIO(read), weights_only=True)

    compare(
        benchmark,
        lambda: save_and_load(path, content),
        lambda: save_and_load_with_torch(tmp_path / "torch", content),
        Target(
            1.3, limited_by="torch's calls, with a digest after writing and another of the very bytes that are loaded"
        ),
        rounds=ROUNDS[size],
        floor=floor,
    )


def bench_profile(benchmark: Any, tmp_path: Path) -> None:
    contents = {size: payload(size) for size in SIZES}
    actions = {size: partial(save_and_load, tmp_path / "checkpoint", each) for size, each in contents.items()}
    profile(benchmark, actions, repetitions=5)


def bench_peak_memory(benchmark: Any, tmp_path: Path) -> None:
    """Of a process that saves and loads, less that of one that only makes the tensors."""
    rows = []
    for size in SIZES:
        mebibytes = sum(each.nbytes for each in payload(size)["policy"].values()) / 2**20
        peaks = [_peak(size, tmp_path, how) for how in ("nothing", "torch", "ours")]
        rows.append([size, f"{mebibytes:.1f}", *(f"{(peak - peaks[0]) / 2**10:.1f}" for peak in peaks[1:])])
    benchmark.pedantic(lambda: None)
    table(benchmark, ["tensors", "MiB", "torch's peak over them, MiB", "ours, MiB"], rows)


def _peak(size: str, folder: Path, how: str) -> int:
    """Largest resident memory of a process, KiB (Linux)."""
    command = [sys.executable, "-m", "benchmarks.bench_checkpoints", size, str(folder / how), how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    of_size, where, way = sys.argv[1:]
    made = payload(of_size)
    ways = {"ours": save_and_load, "torch": save_and_load_with_torch}
    if way in ways:
        ways[way](Path(where), made)
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sys.stdout.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
