"""Rules for functions that save and load, and the function that runs them."""

from __future__ import annotations

import importlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Unpack

from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord
from rlverify.checks.engine.kinds import CheckOptions, Kind
from rlverify.checks.engine.rule import compared, failing, passing
from rlverify.checks.engine.session import OTHER_SEED
from rlverify.checks.rules.safety import files_in, imports_of, pickles_in_all
from rlverify.checks.state.random_state import seed_globals
from rlverify.checks.state.tree import digests
from rlverify.records.attempts import Crash, attempt

CUTS: Final = (0.0, 0.5, 0.99)
"""Parts of a file that are left when it is cut off."""
PLACES: Final = 16
"""Bytes of a file that are changed, one at a time."""
NAME: Final = "checkpoint"


@dataclass(frozen=True)
class CheckpointSubject:
    """An object, and how it is saved and loaded."""

    save: Callable[[Any, Path], object]
    load: Callable[[Path, Any], Any]
    make: Callable[[], Any]
    change: Callable[[Any], object]

    def changed(self) -> Any:
        """An object that differs from a fresh one."""
        made = self.make()
        self.change(made)
        return made

    @contextmanager
    def saved(self, made: Any) -> Iterator[Path]:
        """The path at which an object is saved, in a folder of its own."""
        with tempfile.TemporaryDirectory(prefix="rlverify-check-") as name:
            path = Path(name) / NAME
            self.save(made, path)
            yield path

    def loaded(self, path: Path) -> dict[str, str]:
        """Digests of the object that is loaded from a path."""
        return digests(self.load(path, self.make()))


CHECKPOINTS: Final = Kind[CheckpointSubject]("checkpoints", "check_checkpoint")


def check_checkpoint(
    save: Callable[[Any, Path], object],
    load: Callable[[Path, Any], Any],
    make: Callable[[], Any],
    *,
    change: Callable[[Any], object] = lambda _made: None,
    **options: Unpack[CheckOptions],
) -> list[CheckRecord]:
    """Run the rules for saving and loading; nothing is raised for what the functions do.

    :param save: writes an object to a path, which does not exist yet or is that of an older file
    :param load: reads it; gets the path and a fresh object, and returns the object that goes on
    :param make: makes a fresh object
    :param change: changes an object in place, as training does; without it, a load that does nothing is not detected
    :param options: as `CheckOptions` says
    :raises UnknownRuleError: if there is no rule of a name
    """
    subject = CheckpointSubject(save, load, make, change)
    return CHECKPOINTS.check(subject, save, lambda: _saved_and_read(subject), **options)


def _saved_and_read(subject: CheckpointSubject) -> None:
    with subject.saved(subject.changed()) as path:
        subject.load(path, subject.make())


def _compared(expected: dict[str, str], found: dict[str, str], what: str) -> CheckFinding:
    return compared(expected, found, f"{{}} of {len(expected)} values {what}")


def _load_or_make(subject: CheckpointSubject, path: Path, fresh: Any) -> Any:
    found = attempt(lambda: subject.load(path, fresh))
    return subject.make() if isinstance(found, Crash) else found


def _delete(_subject: CheckpointSubject, _made: Any, path: Path) -> None:
    for old in path.parent.glob(f"{path.name}*"):
        if old.is_file():
            old.unlink()


FORGETS: Final = faults.instead("load", "return the fresh object in load()", lambda _subject, _path, fresh: fresh)
CHANGES: Final = faults.after("save", "change the object", lambda subject, _none, made, _path: subject.change(made))
LENIENT: Final = faults.instead("load", "return a fresh object for files that cannot be read", _load_or_make)
DELETES: Final = faults.before("save", "delete the older file first", _delete)
CALLS: Final = faults.after(
    "save",
    "save a pickle that calls a function",
    lambda *given: (given[-1].parent / "rlverify.pkl").write_bytes(b"cbuiltins\nprint\n(tR."),
)


@CHECKPOINTS.rule("high", faults=[FORGETS])
def checkpoint_restores_everything(subject: CheckpointSubject) -> CheckFinding:
    """What is loaded equals what was saved.

    A value that is missing in a checkpoint begins from scratch after every restart.
    """
    saved = subject.changed()
    expected = digests(saved)
    with subject.saved(saved) as path:
        seed_globals(OTHER_SEED)
        return _compared(expected, subject.loaded(path), "differ after the load")


@CHECKPOINTS.rule("high", faults=[CHANGES])
def saving_changes_nothing(subject: CheckpointSubject) -> CheckFinding:
    """Saving changes nothing.

    If not, a run with checkpoints differs from a run without.
    """
    saved = subject.changed()
    before = digests(saved)
    with subject.saved(saved):
        return _compared(before, digests(saved), "changed")


@CHECKPOINTS.rule("high", faults=[LENIENT])
def truncated_file_is_refused(subject: CheckpointSubject) -> CheckFinding:
    """A file that is cut off is refused.

    A process that dies while it writes leaves such a file. Training that goes on from it starts from scratch unseen.
    """
    return _refused(
        subject, lambda content: [(f"{part:.0%} left", content[: int(len(content) * part)]) for part in CUTS]
    )


@CHECKPOINTS.rule("medium", faults=[LENIENT])
def changed_byte_is_refused(subject: CheckpointSubject) -> CheckFinding:
    """A file with a changed byte is refused, or loads to the same object.

    Disks and copies lose bits. Without a checksum, a weight changes its exponent and nothing reports it.
    """

    def changed(content: bytes) -> list[tuple[str, bytes]]:
        places = sorted({len(content) * number // PLACES for number in range(PLACES)}) if content else []
        return [(f"byte {at}", content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]) for at in places]

    return _refused(subject, changed)


def _refused(subject: CheckpointSubject, broken: Callable[[bytes], list[tuple[str, bytes]]]) -> CheckFinding:
    """Whether every broken form of every file raises or loads to the same object."""
    saved = subject.changed()
    expected = digests(saved)
    with subject.saved(saved) as path:
        for file in files_in(path.parent):
            content = file.read_bytes()
            for what, replaced in broken(content):
                file.write_bytes(replaced)
                found = attempt(lambda: subject.loaded(path))
                if not isinstance(found, Crash) and found != expected:
                    return failing("load() returns another object without an error", where=f"{file.name}: {what}")
            file.write_bytes(content)
    return passing()


@CHECKPOINTS.rule("high", faults=[DELETES])
def failed_save_keeps_the_old_file(subject: CheckpointSubject) -> CheckFinding:
    """A save that fails leaves the older file as it was.

    A save that writes over the only checkpoint loses the whole run. Write to another name, and rename it at the end.
    """
    saved = subject.changed()
    with subject.saved(saved) as path:
        expected = subject.loaded(path)
        largest = max(each.stat().st_size for each in files_in(path.parent))
        subject.change(saved)
        with _files_of_at_most(largest // 2):
            ended = attempt(lambda: subject.save(saved, path))
        if not isinstance(ended, Crash):
            return failing("save() raises nothing where the disk is full", where=NAME)
        found = attempt(lambda: subject.loaded(path))
    if isinstance(found, Crash):
        return failing(f"the older file cannot be loaded: {found.line}", where=NAME)
    return _compared(expected, found, "differ in the older file")


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """Writing more than some bytes to a file fails in this process, as on a full disk."""
    if sys.platform == "win32":
        raise NotSupportedError("this system has no limit for the size of files")
    resource = importlib.import_module("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)


@CHECKPOINTS.rule("high", faults=[CALLS])
def checkpoint_runs_nothing_when_read(subject: CheckpointSubject) -> CheckFinding:
    """Reading the file imports nothing but what builds plain data and tensors.

    The pickles in the file name no function and no class except those that build arrays and containers. Unpickling
    calls the functions that a file names. The names are read from its instructions; it is not loaded.
    """
    with subject.saved(subject.changed()) as path:
        return imports_of(pickles_in_all(path.parent))
