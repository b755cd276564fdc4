"""Files and directories only their owner can read, replaced whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from qtunnel.errors import AlreadyRunningError, StateError, SystemSetupError

__all__ = ["FileLock", "ensure_private_directory", "read_private", "write_private"]

MAX_FILE: Final = 16 * 1024 * 1024
LOCK_WAIT_S: Final = 10.0
_POLL_S: Final = 0.02


def ensure_private_directory(path: Path) -> Path:
    """Make the directory with mode 0700 if it is missing, and check that it is ours alone.

    An existing one is never changed: it could be /tmp.

    Raises:
        SystemSetupError: no permission to make or read it.
        StateError: it is no directory, belongs to someone else, or others may enter it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        status = path.stat()
    except PermissionError as error:
        raise SystemSetupError(
            f"no permission to use {path}", remedy="Run it as root (sudo), or name another directory"
        ) from error
    except OSError as error:
        raise StateError(f"{path} cannot be used: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise StateError(f"{path} is not a directory")
    if status.st_uid not in (os.geteuid(), 0):
        raise StateError(f"{path} belongs to user id {status.st_uid}, not to us ({os.geteuid()}) or root")
    if status.st_mode & 0o077:
        raise StateError(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: others may enter it. Type: chmod 700 {path}"
        )
    return path


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the file by data, mode 0600, in one step: a reader sees all of the old or all of the new.

    durable: also wait until the disk has it; not worth it for what can be made again.

    Raises:
        SystemSetupError: no permission. StateError: anything else the file system says.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask is
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(temporary, path)
        if durable:
            _sync_directory(path.parent)
    except PermissionError as error:
        raise SystemSetupError(f"no permission to write {path}", remedy="Run it as root (sudo)") from error
    except OSError as error:
        raise StateError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def read_private(path: Path, *, max_bytes: int = MAX_FILE) -> bytes | None:
    """Return the file's content, None when there is no such file.

    Raises:
        StateError: others may read or write it, it is no plain file, or it is longer than max_bytes.
        SystemSetupError: no permission.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise SystemSetupError(f"no permission to read {path}", remedy="Run it as root (sudo)") from error
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    try:
        _check_private(path, os.fstat(descriptor))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise StateError(f"{path} is longer than {max_bytes} bytes; it is not one of our files")
    return data


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise StateError(f"{path} is not a plain file")
    if status.st_mode & 0o077:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise StateError(f"{path} has mode {mode}: others may read its secrets. Type: chmod 600 {path}")


class FileLock:
    """An advisory lock, held within `with`; the kernel drops it when the process dies.

    path: a file, made if it is missing, or an existing directory.

    wait: seconds to wait for another holder; 0 means not at all, and then someone else holding it is
    AlreadyRunningError rather than StateError, with the text taken.
    """

    def __init__(self, path: Path, *, wait: float = LOCK_WAIT_S, taken: str = "") -> None:
        self._path = path
        self._taken = taken or f"another process holds {path}"
        self._wait = wait
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            AlreadyRunningError: wait is 0 and another process holds it. StateError: it could not be had in time.
            SystemSetupError: no permission.
        """
        try:
            how = os.O_RDONLY | os.O_DIRECTORY if self._path.is_dir() else os.O_RDWR | os.O_CREAT
            descriptor = os.open(self._path, how | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise SystemSetupError(
                f"no permission to write {self._path}", remedy="Run it as root (sudo)"
            ) from error
        except OSError as error:
            raise StateError(f"{self._path} cannot be locked: {error.strerror}") from error
        deadline = time.monotonic() + self._wait
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                if self._wait == 0:
                    raise AlreadyRunningError(self._taken)
                raise StateError(f"{self._path} has been locked by another process for {self._wait:g} s")
            time.sleep(_POLL_S)
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go of the lock, if it is held. The file stays: removing it would race with the next holder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
