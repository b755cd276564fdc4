"""Network namespaces for tests: made with unique names, joined with veth pairs, removed whatever happens.

    with Namespaces() as lab:
        client, router = lab.add("c"), lab.add("r")
        lab.join(client, "eth0", router, "to-c", mtu=1500)
        client.add_address("eth0", "198.18.1.1/24")
        with client.entered():
            ...                       # sockets opened here belong to the namespace for good
        lab.check("c", "ping -c1 ...")

Nothing outside the namespaces is touched. A test that wants DAD, offloads or permanent neighbours says so itself.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shlex
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def run(command: str, *, check: bool = True, text: str | None = None, timeout: float = 30.0) -> str:
    """Run a command (no shell); return its standard output. Raises with its error output when it fails."""
    done = subprocess.run(
        shlex.split(command), input=text, capture_output=True, text=True, timeout=timeout, check=False
    )
    if check and done.returncode:
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Namespace:
    """One namespace, with its loopback up and duplicate address detection off."""

    def __init__(self, name: str) -> None:
        self.name = name
        run(f"ip netns add {name}")
        # Before the first link exists: otherwise IPv6 addresses are tentative for two seconds.
        self.sysctl("net/ipv6/conf/all/accept_dad", "0")
        self.sysctl("net/ipv6/conf/default/accept_dad", "0")
        self.run("ip link set lo up")

    def run(self, command: str, *, check: bool = True, text: str | None = None, timeout: float = 30.0) -> str:
        """Run a command in here; return its standard output."""
        return run(f"ip netns exec {self.name} {command}", check=check, text=text, timeout=timeout)

    def python(self, code: str, *arguments: str, check: bool = True, timeout: float = 30.0) -> str:
        """Run Python code in a process of its own in here; return its standard output."""
        command = shlex.join([sys.executable, "-W", "error", "-c", code, *arguments])
        return self.run(command, check=check, timeout=timeout)

    def spawn(self, command: str) -> subprocess.Popen[str]:
        """Start a command in here; the caller ends it (by its pid)."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *shlex.split(command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def sysctl(self, key: str, value: str | None = None) -> str:
        """Read, and before that perhaps write, a setting of this namespace; key as below /proc/sys."""
        if value is not None:
            self.run(f"sh -c 'echo {value} > /proc/sys/{key}'")
        return self.run(f"cat /proc/sys/{key}").strip()

    def add_address(self, interface: str, address: str) -> None:
        """Give an interface an address with its prefix length."""
        nodad = " nodad" if ":" in address else ""
        self.run(f"ip address add {address} dev {interface}{nodad}")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread into the namespace for the length of the block. Only for single-threaded tests."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            inside = os.open(f"/run/netns/{self.name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _set_namespace(inside)
            finally:
                os.close(inside)
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(before)

    def remove(self) -> None:
        """Remove it and every interface in it. Never raises."""
        run(f"ip netns del {self.name}", check=False)


class Namespaces:
    """The namespaces of one test, removed at the end of the with block, also when the test fails."""

    def __init__(self, prefix: str = "qtt") -> None:
        self._prefix = f"{prefix}{os.getpid()}{secrets.token_hex(2)}"
        self._namespaces: list[Namespace] = []
        self._pairs = 0

    def __enter__(self) -> Namespaces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for namespace in reversed(self._namespaces):
            namespace.remove()

    def add(self, label: str) -> Namespace:
        """Make a namespace; its name is unique, the label only helps reading."""
        name = f"{self._prefix}-{label}"
        try:
            namespace = Namespace(name)
        except BaseException:
            run(f"ip netns del {name}", check=False)
            raise
        self._namespaces.append(namespace)
        return namespace

    def join(
        self, left: Namespace, left_interface: str, right: Namespace, right_interface: str, *, mtu: int = 1500
    ) -> None:
        """Join two namespaces by a veth pair, both ends up, with the same MTU."""
        run(
            f"ip link add name {left_interface} netns {left.name} mtu {mtu} type veth "
            f"peer name {right_interface} netns {right.name} mtu {mtu}"
        )
        left.run(f"ip link set {left_interface} up")
        right.run(f"ip link set {right_interface} up")


def _set_namespace(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
