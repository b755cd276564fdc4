"""Network namespaces: make, enter, remove. Nothing of the host's own namespace is ever written."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from netlab.command import run

DIRECTORY: Final = Path("/run/netns")
SYSCTLS: Final = Path("/proc/sys/net")
CLONE_NEWNET: Final = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def create(name: str) -> None:
    """Make a namespace; it can be seen and entered with `ip netns` under this name."""
    run(["ip", "netns", "add", name])


def delete(name: str) -> None:
    """Remove a namespace, and with it its devices, routes and rules, once no process is left in it."""
    run(["ip", "netns", "del", name], check=False)


def exists(name: str) -> bool:
    """Tell whether there is a namespace of this name."""
    return (DIRECTORY / name).exists()


def pids(name: str) -> list[int]:
    """Return the processes that are in a namespace now."""
    try:
        wanted = (DIRECTORY / name).stat()
    except OSError:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            stat = (entry / "ns/net").stat()
            if (stat.st_ino, stat.st_dev) == (wanted.st_ino, wanted.st_dev):
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Put the calling thread into a namespace: sockets opened and /proc/sys/net files written are of there.

    Only the calling thread moves, and a socket stays where it was opened.
    """
    with open("/proc/thread-self/ns/net", "rb") as home, (DIRECTORY / name).open("rb") as there:
        _setns(there.fileno(), name)
        try:
            yield
        finally:
            _setns(home.fileno(), "the host's")


def write_sysctls(name: str, values: dict[str, str]) -> None:
    """Set sysctls of a namespace, written with dots below `net.` (such as ipv4.ip_forward)."""
    with entered(name):
        for key, value in values.items():
            SYSCTLS.joinpath(*key.split(".")).write_text(value)


def read_sysctls(name: str) -> dict[str, str]:
    """Return all of a namespace's sysctls for IPv4 and IPv6 that can be read, without those of neighbours."""
    values = {}
    with entered(name):
        for family in (SYSCTLS / "ipv4", SYSCTLS / "ipv6"):
            for file in family.rglob("*"):
                with contextlib.suppress(OSError):
                    if "neigh" not in file.parts and file.is_file():
                        values[".".join(file.relative_to(SYSCTLS).parts)] = file.read_text().strip()
    return values


def read_proc_net(name: str, file: str) -> str:
    """Return a file below /proc/net as it is in a namespace."""
    with entered(name):
        # /proc/net itself is that of the process's main thread, which may not be the one that has moved.
        return Path(f"/proc/self/task/{threading.get_native_id()}/net", file).read_text()


def _setns(descriptor: int, name: str) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter namespace {name}: {os.strerror(number)}")
