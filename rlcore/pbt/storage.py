"""Where the files of a population are kept: a folder of this machine, or any URL of fsspec."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol

from rlcore.checkpoint.storage import write_atomic
from rlcore.errors import CheckpointError
from rlcore.pbt import files
from rlcore.pbt.extra import imported

LEASE_FILE: Final = "lease.json"
LEASE_SECONDS: Final = 60
"""How long a scheduler keeps others out after it last refreshed its lease; the clocks of their machines must agree."""
REFRESH_SECONDS: Final = 15
"""Between two refreshes of the lease, which also happen at every commit."""
SETTLE_SECONDS: Final = 2.0
"""After an old lease was taken over, until the look that shows whether another scheduler took it too."""
LOCAL: Final = frozenset({"file", "local"})
"""Protocols of folders of this machine, which others may give as a path."""
OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "adl", "memory"})
"""Protocols of which one put shows the old object or the new one; of others a file is written and then moved."""
_NOT_SHARED: Final = frozenset({"lock", LEASE_FILE})
_LAST: Final = (files.LINEAGE_FILE, files.STATE_FILE)

_logger = logging.getLogger("rlcore.pbt")


class Storage(Protocol):
    """Keeps the files of a population.

    :param folder: where the population reads and writes them
    """

    folder: Path

    def locked(self) -> AbstractContextManager[None]:
        """Keep other schedulers from training there meanwhile.

        :raises CheckpointError: if one does
        """
        ...

    def publish(self) -> None:
        """Make what was committed in ``folder`` what another scheduler would find: members, lineage, state last.

        :raises CheckpointError: if something cannot be written; what was published last is still there
        """
        ...

    def shown(self, path: Path) -> str:
        """The name under which others find a file of ``folder``."""
        ...


class LocalFolder:
    """A folder of this machine, or one that it has mounted; a lock of the operating system keeps others out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = self._state_now()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """See :meth:`Storage.locked`; the lock ends with the process, a killed one too."""
        with files.locked(self.folder):
            if self._state_now() != self._state:
                raise _was_changed(self.folder)
            yield

    def publish(self) -> None:
        """Note which state is this scheduler's own."""
        self._state = self._state_now()

    def _state_now(self) -> tuple[int, ...] | None:
        path = self.folder / files.STATE_FILE
        return _signature(path) if path.exists() else None

    def shown(self, path: Path) -> str:
        """The path."""
        return str(path)


class _Lease(NamedTuple):
    """Who trains, and when it last said so (seconds since 1970)."""

    owner: str
    host: str
    pid: int
    time: float


class RemoteFolder:
    """A URL of fsspec, with a temporary copy of its files on this machine, which lasts as long as this object.

    A lease, the object ``lease.json``, keeps other schedulers out. It holds the owner, its host and the time, is
    refreshed at every commit and every :data:`REFRESH_SECONDS`, and counts for :data:`LEASE_SECONDS`: so after a kill
    others are refused for that long. Another scheduler that took the lease ends this one at its next commit.

    :param url: such as ``s3://bucket/population``
    :raises SettingError: if fsspec is not installed
    :raises CheckpointError: if the URL cannot be read
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        protocol, _, place = self.url.partition("://")
        if not place or (protocol in LOCAL and not place.startswith("/")):
            raise CheckpointError(url, "names no folder; give one such as s3://bucket/population or file:///population")
        if any("cache" in each.partition("://")[0] for each in url.split("::")):
            raise CheckpointError(
                url,
                "cannot be used, as a cache shows the lease of a scheduler as it was; give the URL behind the cache",
            )
        fsspec = imported("fsspec", f"the folder {url}")
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise CheckpointError(url, f"cannot be used ({error}); install what it names, or give another") from error
        self.folder = Path(tempfile.mkdtemp(prefix="rlcore-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._owner = secrets.token_hex(8)
        self._refreshing = threading.Lock()
        self._published: dict[str, tuple[int, ...]] = {}
        self._fetch()

    def shown(self, path: Path) -> str:
        """The URL of a file; the path as it is where it is none of ``folder``."""
        return (
            f"{self.url}/{path.relative_to(self.folder).as_posix()}" if path.is_relative_to(self.folder) else str(path)
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """See :meth:`Storage.locked`."""
        with self._locked_here():
            ended = threading.Event()
            refreshing = threading.Thread(target=self._keep_lease, args=(ended,), daemon=True)
            try:
                self._take_lease()
                refreshing.start()
                self._require_unchanged()
                yield
            finally:
                ended.set()
                if refreshing.is_alive():
                    refreshing.join()
                self._give_lease_back()

    def _locked_here(self) -> AbstractContextManager[None]:
        """Keep out those that give a folder of this machine as a path."""
        if not self._protocols() & LOCAL:
            return nullcontext()
        files.make_folder(Path(self._root))
        return files.locked(Path(self._root))

    def publish(self) -> None:
        """See :meth:`Storage.publish`; files that are no longer in ``folder`` are removed last."""
        here = {name: _signature(self.folder / name) for name in self._names_here()}
        changed = [name for name in here if self._published.get(name) != here[name]]
        if changed:  # before anything is replaced: this process may have been stopped for longer than its lease
            self._refresh_lease()
        for name in sorted(changed, key=_order):
            if name == files.STATE_FILE:
                self._refresh_lease()
            self._put(name, (self.folder / name).read_bytes())
            self._published[name] = here[name]
        for name in set(self._published) - set(here):
            with self._named(name, "removed"), suppress(FileNotFoundError):
                self._fs.rm_file(self._remote(name))
            del self._published[name]

    def _fetch(self) -> None:
        """Copy what is there into ``folder``."""
        with self._named("", "read"):
            self._fs.invalidate_cache()
            found = sorted(self._fs.find(self._root))
        for remote in found:
            name = PurePosixPath(remote).relative_to(PurePosixPath(self._root)).as_posix()
            if name in _NOT_SHARED or ".." in name.split("/") or PurePosixPath(name).name.startswith("."):
                continue
            content = self._content(name)
            if content is None:  # removed by a scheduler that trains now, which _require_unchanged notices
                continue
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
            self._published[name] = _signature(path)

    def _names_here(self) -> list[str]:
        found = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("[!.]*") if path.is_file())
        return [name for name in found if name not in _NOT_SHARED]

    def _require_unchanged(self) -> None:
        """
        :raises CheckpointError: if another scheduler has trained there since the files were copied
        """
        path = self.folder / files.STATE_FILE
        if self._content(files.STATE_FILE) != (path.read_bytes() if path.exists() else None):
            raise _was_changed(self.url)

    def _take_lease(self) -> None:
        found = self._lease()
        if found is not None and time.time() - found.time < LEASE_SECONDS:
            raise self._in_use(found)
        with suppress(FileExistsError):  # another was faster, as the next look shows
            self._write_lease(is_new=found is None)
        if found is not None:
            time.sleep(SETTLE_SECONDS)
        self._require_lease()

    def _refresh_lease(self) -> None:
        with self._refreshing:
            self._require_lease()
            self._write_lease(is_new=False)

    def _require_lease(self) -> None:
        found = self._lease()
        if found is None or found.owner != self._owner:
            raise self._in_use(found)

    def _in_use(self, found: _Lease | None) -> CheckpointError:
        who = "another process" if found is None else f"process {found.pid} on {found.host}"
        when = "" if found is None else f", which said so {max(0.0, time.time() - found.time):.0f} s ago"
        return CheckpointError(
            self.url,
            f"cannot be used, as {who} is training in it{when}; wait for it, or give another folder. If it was killed, "
            f"try again {LEASE_SECONDS} s after it last said so",
        )

    def _keep_lease(self, ended: threading.Event) -> None:
        while not ended.wait(REFRESH_SECONDS):
            try:
                self._refresh_lease()
            except CheckpointError as error:  # which the next commit raises, if it lasts
                _logger.warning("the lease could not be refreshed: %s", error)

    def _give_lease_back(self) -> None:
        try:
            found = self._lease()
            if found is not None and found.owner == self._owner:
                with self._named(LEASE_FILE, "removed"):
                    self._fs.rm_file(self._remote(LEASE_FILE))
        except CheckpointError as error:  # which must not replace what ended the training; the lease grows old
            _logger.warning("the lease could not be given back: %s", error)

    def _lease(self) -> _Lease | None:
        content = self._content(LEASE_FILE)
        if content is None:
            return None
        try:
            return _Lease(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{self.url}/{LEASE_FILE}", f"is no lease ({error}); remove it") from error

    def _write_lease(self, *, is_new: bool) -> None:
        content = json.dumps(_Lease(self._owner, socket.gethostname(), os.getpid(), time.time())._asdict()).encode()
        if is_new:
            with self._named(LEASE_FILE, "written"):
                self._fs.makedirs(self._root, exist_ok=True)
                self._fs.pipe_file(self._remote(LEASE_FILE), content, mode="create")
        else:
            self._put(LEASE_FILE, content)

    def _content(self, name: str) -> bytes | None:
        """A remote file, or None if there is none."""
        with self._named(name, "read"):
            try:
                content: bytes = self._fs.cat_file(self._remote(name))
            except FileNotFoundError:
                return None
            return content

    def _put(self, name: str, content: bytes) -> None:
        """Write a remote file so that a reader finds the old one or the new one."""
        target = self._remote(name)
        with self._named(name, "written"):
            if self._protocols() & OBJECT_STORES:
                self._fs.pipe_file(target, content)
                return
            folder, _, last = target.rpartition("/")
            written = f"{folder}/.{last}.{self._owner}.tmp"
            self._fs.makedirs(folder, exist_ok=True)
            self._fs.pipe_file(written, content)
            self._fs.mv(written, target)
            self._fs.invalidate_cache()
            if self._fs.exists(written):  # as with WebHDFS, which raises nothing
                raise OSError("a move there does not replace a file; give another file system")

    def _protocols(self) -> set[str]:
        found = self._fs.protocol
        return {found} if isinstance(found, str) else set(found)

    def _remote(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _named(self, name: str, what: str) -> Iterator[None]:
        """Turn an error of the file system into one that names the file.

        File systems of fsspec also raise what their clients raise, which has no class in common.
        """
        try:
            yield
        except FileExistsError:
            raise
        except Exception as error:
            raise CheckpointError(f"{self.url}/{name}", f"cannot be {what} ({error})") from error


def storage_of(folder: str | Path) -> LocalFolder | RemoteFolder:
    """The storage that a path or a URL names.

    :raises CheckpointError: if it names none
    """
    if folder == "":
        raise CheckpointError(folder, "names no folder; give one, or . for the current one")
    return RemoteFolder(folder) if isinstance(folder, str) and "://" in folder else LocalFolder(Path(folder))


def _was_changed(folder: str | Path) -> CheckpointError:
    return CheckpointError(
        folder,
        "was changed by another scheduler since this population was made; make it again, or start the command again",
    )


def _signature(path: Path) -> tuple[int, ...]:
    """What differs after a file was written again."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _order(name: str) -> tuple[int, str]:
    return (_LAST.index(name) + 1 if name in _LAST else 0), name
