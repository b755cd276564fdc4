"""Kernel settings below /proc/sys, by path: "net/ipv4/conf/eth0.100/rp_filter" (interface names may hold dots)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from qtunnel.errors import SystemSetupError

__all__ = ["command_to_set", "read_sysctl", "sysctl_names", "write_sysctl"]

PROC_SYS: Final = Path("/proc/sys")


def read_sysctl(key: str, *, root: Path = PROC_SYS) -> str | None:
    """Return a setting without its line end; None where the kernel has none of that name or we may not look."""
    try:
        return (root / key).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def write_sysctl(key: str, value: str, *, root: Path = PROC_SYS) -> None:
    """Change a setting.

    Raises:
        SystemSetupError: the kernel has no such setting or we may not; names the command that would set it.
    """
    try:
        # One write, and no O_CREAT: where the setting is missing, no file is to appear.
        fd = os.open(root / key, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise SystemSetupError(f"the kernel has no setting {_dotted(key)}") from error
        raise SystemSetupError(
            f"cannot set {_dotted(key)} to {value} ({error.strerror})",
            remedy=f"Type, as root and outside a container: {command_to_set(key, value)}",
        ) from error


def sysctl_names(folder: str, *, root: Path = PROC_SYS) -> list[str]:
    """Return the names below a folder, such as the interfaces of net/ipv4/conf; empty where there is no folder."""
    try:
        return sorted(entry.name for entry in (root / folder).iterdir())
    except OSError:
        return []


def command_to_set(key: str, value: str) -> str:
    """Return what a person types to set it."""
    return f"sysctl -w {_dotted(key)}={value}"


def _dotted(key: str) -> str:
    """Return the usual spelling, or the one with slashes (which sysctl takes as well) where a name holds a dot."""
    return key if "." in key else key.replace("/", ".")
