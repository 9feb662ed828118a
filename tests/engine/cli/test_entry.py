"""The program as the shell meets it: interrupted at any moment, or read by something that stops reading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlverify.records import process

ROOT = Path(__file__).parents[3]
STOPPED_WHILE_IMPORTING = """
import signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "rlverify.cli.app":
            signal.raise_signal(int(sys.argv.pop()))
sys.meta_path.insert(0, Interrupt())
from rlverify.cli.entry import main
main()
"""


@pytest.mark.parametrize("number", process.SIGNALS)
def test_an_interrupt_during_the_imports_is_one_line(number: int) -> None:
    command = [sys.executable, "-c", STOPPED_WHILE_IMPORTING, "list", str(int(number))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "rlverify: interrupted before the end; run it again\n"


@pytest.mark.parametrize("arguments", [["list", "--json"], ["--help"]])
def test_a_reader_that_stops_reading_does_not_change_the_answer(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "rlverify.cli.entry", *arguments],
        cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_output_is_an_error_of_one_line() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "rlverify.cli.entry", "list"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("rlverify: standard output is closed")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", process.SIGNALS)
def test_interrupts_raise_while_workers_run_and_are_put_back_after(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), process.raised():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_an_interrupt_waits_until_files_are_replaced(tmp_path: Path) -> None:
    script = (
        "import signal, sys; from pathlib import Path; from rlverify.evidence import files\n"
        "real = Path.replace\n"
        "def replace(self, target):\n"
        "    signal.raise_signal(signal.SIGTERM); return real(self, target)\n"
        "Path.replace = replace\n"
        "files.write_files(Path(sys.argv[1]), {'a.md': 'one', 'b.md': 'two'})\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, capture_output=True, check=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.md": "one", "b.md": "two"}
