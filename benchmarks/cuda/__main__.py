"""The command.

python -m benchmarks.cuda [run]                  measures on a CUDA device, in under eight minutes, and writes the page
python -m benchmarks.cuda run --device cpu       rehearses on the CPU with small sizes, in about a minute
python -m benchmarks.cuda report                 writes the page again from what was measured

With NUMBA_DISABLE_JIT=1 a rehearsal takes the code path of a device, and counts the operators that one would be asked
for.

Exit code 0: measured; 1: measured, but a section or a test failed, as the page says; 2: there is no CUDA device, or the
arguments cannot be used, and nothing was written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from benchmarks.cuda import marked_tests, page
from benchmarks.cuda.device import missing
from benchmarks.cuda.plan import FULL, REHEARSAL
from benchmarks.cuda.run import failed, measure
from benchmarks.cuda.timing import Record

MEASURED: Final = marked_tests.ROOT / "reports" / "measured"
REHEARSED: Final = marked_tests.ROOT / "build" / "cuda-rehearsal"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.what == "report":
        return _report(options.output or MEASURED)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(missing(), file=sys.stderr)
        return 2
    rehearses = device.type == "cpu"
    folder = options.output or (REHEARSED if rehearses else MEASURED)
    if rehearses and folder.resolve() == MEASURED:
        print(f"--output {folder} is for pages of a device; nothing was run. Give another folder.", file=sys.stderr)
        return 2
    record = measure(REHEARSAL if rehearses else FULL, device, marked_tests.files_with_marked_tests())
    write(record, folder)
    return int(failed(record))


def write(record: Record, folder: Path) -> None:
    """Write ``cuda.json`` and ``cuda.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cuda.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "cuda.md").write_text(page.render(record), encoding="utf-8")
    print(f"wrote {folder / 'cuda.md'} and cuda.json")


def _report(folder: Path) -> int:
    path = folder / "cuda.json"
    if not path.is_file():
        print(f"{path} does not exist, so there is nothing to render; run `make bench-cuda` first.", file=sys.stderr)
        return 2
    write(json.loads(path.read_text(encoding="utf-8")), folder)
    return 0


def _device(text: str) -> str:
    kind, _, index = text.partition(":")
    if kind not in ("cuda", "cpu") or not (index == "" or index.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no device; give cuda, cuda:1 or cpu")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description="Measure training on a CUDA device.")
    parser.add_argument("what", nargs="?", choices=["run", "report"], default="run")
    parser.add_argument("--device", type=_device, default="cuda", help="cuda, cuda:1, or cpu for a rehearsal")
    parser.add_argument("--output", type=Path, help="folder of cuda.md and cuda.json; default: reports/measured")
    return parser


if __name__ == "__main__":
    sys.exit(main())
