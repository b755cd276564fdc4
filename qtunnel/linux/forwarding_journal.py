"""What forwarding was before a tunnel switched it on: noted in a file, for the case that the tunnel is killed.

A sysctl carries no mark that says who set it. So there is one file for each IP version and network namespace.
Each tunnel that needs forwarding holds a shared lock on it, which the kernel drops when the process dies: whoever
gets an exclusive one knows that nobody needs forwarding any more, and puts back what the file says. That is the
last tunnel at its end, or the next one at its start. A lock on the directory makes these steps one at a time.

Without a directory, or with one that cannot be used, nothing is noted and a killed run leaves forwarding on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from qtunnel.linux.sysctl import read_sysctl

__all__ = ["ForwardingJournal", "SettingsBefore"]

logger = logging.getLogger(__name__)

_SO_NETNS_COOKIE: Final = 71
"""Linux 5.14. Unlike the inode of /proc/self/ns/net it never means another namespace later on."""
_COOKIE: Final = struct.Struct("=Q")
_MAX_FILE: Final = 1 << 20
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True)
class SettingsBefore:
    """Sysctls as they were, by their path below /proc/sys.

    per_interface: forwarding of interfaces that had it on. redirects: accept_redirects of "all", None where it
    is not touched. accept_ra: settings that were 1.
    """

    per_interface: dict[str, str] = field(default_factory=dict)
    redirects: str | None = None
    accept_ra: list[str] = field(default_factory=list)


class ForwardingJournal:
    """The file of one IP version, in the network namespace this is made in. Call its methods within locked()."""

    def __init__(self, directory: Path | None, version: int) -> None:
        self._directory = directory
        self._version = version
        self._fd = -1

    @contextlib.contextmanager
    def locked(self, *, make: bool = False) -> Iterator[None]:
        """Keep every other tunnel from reading or changing the file. make: make the directory if it is missing."""
        fd = -1
        if self._directory is not None:
            try:
                fd = self._lock_directory(self._directory, make=make)
            except FileNotFoundError:
                pass  # nothing was ever noted
            except OSError as error:
                # Without make nothing is to be noted, and nobody else could have noted anything there.
                level = logging.WARNING if make else logging.DEBUG
                text = "%s cannot be used (%s): if this run is killed, forwarding stays on"
                logger.log(level, text, self._directory, error.strerror)
                self._directory = None
        try:
            yield
        finally:
            if fd >= 0:
                os.close(fd)

    def join(self) -> None:
        """Begin to need forwarding: from now on no other tunnel puts it back."""
        if self._directory is None or self._fd >= 0:
            return
        with self._logged("noted down"):
            self._fd = os.open(self._path(self._directory), _FLAGS | os.O_CREAT, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_SH)

    def write(self, before: SettingsBefore) -> None:
        """Note what is to be put back; before anything is changed."""
        if self._fd < 0:
            return
        with self._logged("noted down"):
            data = json.dumps({"boot": _boot(), "settings": asdict(before)}).encode()
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, data, 0)

    def read(self) -> SettingsBefore | None:
        """Return what is noted; None for nothing, or what was noted before the host was started anew."""
        if self._fd < 0:
            return None
        data = os.pread(self._fd, _MAX_FILE, 0)
        try:
            noted = json.loads(data)
            return _checked(**noted["settings"]) if noted["boot"] == _boot() else None
        except (ValueError, TypeError, KeyError, RecursionError):
            if data:
                logger.warning("what is noted about forwarding makes no sense and is forgotten: %.80r", data)
            return None

    def take(self) -> bool:
        """Say whether no living tunnel needs forwarding any more, but perhaps this one; then the file is ours.

        True too for one that noted nothing down, as there is no directory.
        """
        if self._directory is None:
            return True
        try:
            if self._fd < 0:
                self._fd = os.open(self._path(self._directory), _FLAGS)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except BlockingIOError:
            self.close()
            return False
        except OSError as error:
            logger.warning("what is noted about forwarding cannot be read (%s)", error.strerror)
        return True

    def remove(self) -> None:
        """Forget what was noted, as it is put back."""
        if self._fd >= 0 and self._directory is not None:
            with self._logged("removed"):
                self._path(self._directory).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """No longer need forwarding. What is noted stays for others."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _path(self, directory: Path) -> Path:
        return directory / f"forwarding{self._version}-{_namespace()}"

    @staticmethod
    def _lock_directory(directory: Path, *, make: bool) -> int:
        if make:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
                raise PermissionError(0, "others may write to it")
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @contextlib.contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            logger.warning("what forwarding was before cannot be %s (%s)", what, error.strerror)


def _checked(*, per_interface: dict[str, str], redirects: str | None, accept_ra: list[str]) -> SettingsBefore:
    """Return what was noted. Raises: TypeError, ValueError for what we would not have noted."""
    forwarding = dict(per_interface)
    keys = [*forwarding, *accept_ra]
    values = [*forwarding.values(), *([] if redirects is None else [redirects])]
    if not all(re.fullmatch(r"net/ipv[46]/conf/[^/]+/(forwarding|accept_ra)", key) for key in keys):
        raise ValueError(keys)
    if not all(re.fullmatch(r"-?[0-9]+", value) for value in values):
        raise ValueError(values)
    return SettingsBefore(forwarding, redirects, list(accept_ra))


def _namespace() -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return str(_COOKIE.unpack(probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE.size))[0])
    return f"i{os.stat('/proc/self/ns/net').st_ino}"


def _boot() -> str | None:
    return read_sysctl("kernel/random/boot_id")
