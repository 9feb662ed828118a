"""The device that is measured: what it is, and what to install if no device was found."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

import torch

from benchmarks.cuda.timing import Record

INDEX: Final = "https://download.pytorch.org/whl/cu126"


def missing() -> str:
    """One line for a machine on which torch finds no CUDA device: what is installed, and what to install."""
    if torch.version.cuda is None:
        return (
            f"No CUDA device was found, and torch {torch.__version__} is a build without CUDA, so nothing was measured "
            f"and no page was written. Install a CUDA build: make clean && make bench-cuda TORCH_INDEX={INDEX}; or, in "
            f"an environment of your own, pip install --force-reinstall torch --index-url {INDEX}"
        )
    return (
        f"No CUDA device was found by torch {torch.__version__}, a build for CUDA {torch.version.cuda}, so nothing was "
        "measured and no page was written. Install the NVIDIA driver, until nvidia-smi lists the device, or a build of "
        f"torch for your driver: make clean && make bench-cuda TORCH_INDEX={INDEX}"
    )


def describe(device: torch.device) -> Record:
    """Names and versions, for the page."""
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} threads"
    common = {"torch": torch.__version__, "Python": platform.python_version(), "CPU": f"{_cpu()}, {threads}"}
    if device.type != "cuda":
        return {"device": "none: the CPU", **common}
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB",
        "compute capability": f"{properties.major}.{properties.minor}",
        "driver": _driver(),
        "CUDA of torch": str(torch.version.cuda or torch.version.hip),
        "cuDNN": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        **common,
    }


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown: no nvidia-smi"
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return said[0] if said else "unknown: nvidia-smi gave no answer"
