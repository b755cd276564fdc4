"""A site for whole tunnels: namespaces, a kernel router between them, and qtunnel by its command line.

    c1 ── 198.18.1.0/24 ──┐
                          r ── 198.18.9.0/24 ── s ── 198.18.20.0/24 ── h
    c2 ── 198.18.2.0/24 ──┘

The same in 2001:db8:1::/64 and so on; the router's end is always .1 (::1), the far end .2, and s has .1 towards h.
r knows nothing of h nor of the pools, so what crosses it is the tunnel. h sends everything to s.

    with Site.open(clients=("c1", "c2")) as site:
        site.start_server()
        client = site.client("c1")
        client.join(site.add_user("c1"))
        client.start()
        client.wait_up()
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Any

from qtunnel.aio.control import control_request
from qtunnel.errors import NotRunningError
from tests.linux.daemons import LIFE_LIMIT, PATIENCE, Daemon
from tests.linux.namespaces import Namespace, Namespaces

COMMAND = (sys.executable, "-m", "qtunnel")
PORT = 4433
SERVER4, SERVER6 = "198.18.9.2", "2001:db8:9::2"
BEHIND4, BEHIND6 = "198.18.20.0/24", "2001:db8:20::/64"
HOST4, HOST6 = "198.18.20.2", "2001:db8:20::2"
POOL4, POOL6 = IPv4Interface("198.19.77.1/24"), IPv6Interface("2001:db8:77::1/64")
INNER4, INNER6 = str(POOL4.ip), str(POOL6.ip)
"""The server's own addresses inside."""
NETNS_FILES = Path("/etc/netns")
UP = r"^connected to "
LOG_LINES = 30
"""Of each log, shown with a failure."""


class Site:
    """Namespaces c1 (and c2), r, s, h, and what runs in them. Use open().

    state: the server's state directory. directory: for everything, logs among it; short, as it holds sockets.
    command: what runs qtunnel as a daemon. life_limit: seconds after which a daemon is ended.
    """

    def __init__(self, lab: Namespaces, directory: Path, clients: Sequence[str], *, mtu: int) -> None:
        self.lab = lab
        self.directory = directory
        self.state = directory / "state"
        self.r, self.s, self.h = lab.add("r"), lab.add("s"), lab.add("h")
        self.daemons: list[Daemon] = []
        self.command: Sequence[str] = COMMAND
        self.life_limit = LIFE_LIMIT
        self._clients: dict[str, Client] = {}
        self._named: set[Path] = set()
        self._server: Daemon | None = None
        for namespace in (self.r, self.h):
            forward(namespace)
        self._connect(self.r, self.s, 9, mtu)
        for number, name in enumerate(clients, 1):
            host = lab.add(name)
            self._connect(self.r, host, number, mtu)
            self._clients[name] = Client(self, host, name)
        self._connect(self.s, self.h, 20, 1500)

    @classmethod
    @contextlib.contextmanager
    def open(cls, clients: Sequence[str] = ("c1",), *, mtu: int = 1500) -> Iterator[Site]:
        """Build a site; everything is ended and removed at the end of the with block. mtu: of r's links."""
        with tempfile.TemporaryDirectory(prefix="qtt-") as directory, Namespaces() as lab:
            site = cls(lab, Path(directory), clients, mtu=mtu)
            try:
                yield site
                site.check_logs()
            except AssertionError as problem:
                problem.add_note(site.logs())
                raise
            finally:
                site.close()

    # hosts

    @property
    def hosts(self) -> list[Namespace]:
        return [self.r, self.s, self.h, *(client.host for client in self._clients.values())]

    def client(self, name: str = "c1") -> Client:
        return self._clients[name]

    def set_name(self, host: Namespace, name: str, *addresses: str) -> None:
        """Make a host know a name, by a hosts file that `ip netns exec` puts over /etc/hosts; again changes it."""
        folder = NETNS_FILES / host.name
        self._named.add(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nsswitch.conf").write_text("hosts: files\n")
        # Written in place: a running program has this very file mounted.
        (folder / "hosts").write_text("".join(f"{address} {name}\n" for address in addresses))

    # the server

    def start_server(self, *options: str, public: str = f"{SERVER4}:{PORT}", behind: bool = True) -> Daemon:
        """Start `qtunnel serve` and wait until it serves. behind: advertise the network of h."""
        arguments = ["--port", str(PORT), "--public-name", public, "--first-user", "c1"]
        arguments += ["--pool4", str(POOL4), "--pool6", str(POOL6)]
        if behind:
            arguments += ["--advertise", BEHIND4, "--advertise", BEHIND6]
        is_first = not self.state.exists()
        self._server = self.daemon(self.s, ["serve", *arguments, *options], log="serve", owner="s")
        self._server.wait_for("^join link for " if is_first else "^serving on ")
        return self._server

    @property
    def server(self) -> Daemon:
        assert self._server is not None
        return self._server

    def server_status(self) -> dict[str, Any]:
        status = self.status("s", "server")
        assert status is not None, "the server is not running"
        return status

    def server_drops(self, user: str | None = None) -> dict[str, int]:
        """Return the drops the server counted: of a user's session, or of no session."""
        status = self.server_status()
        if user is not None:
            status = next(session for session in status["sessions"] if session["user"] == user)
        drops: dict[str, int] = status["drops"]
        return drops

    def add_user(self, name: str, *options: str) -> str:
        """Return a new user's join link; the first user's, which the server made at its start, for c1."""
        link = self.state / "join" / f"{name}.link"
        if not link.exists():
            self.qtunnel(self.s, ["user", "add", name, *options], owner="s")
        return link.read_text().strip()

    # commands

    def qtunnel(
        self,
        host: Namespace,
        arguments: Sequence[str],
        *,
        owner: str,
        input_text: str | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a qtunnel command to its end. owner: whose directories it uses."""
        done = subprocess.run(
            ["ip", "netns", "exec", host.name, "timeout", "60", *COMMAND, *arguments],
            env={**os.environ, **self.environment(owner)},
            input=input_text,
            stdin=subprocess.DEVNULL if input_text is None else None,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def daemon(self, host: Namespace, arguments: Sequence[str], *, log: str, owner: str) -> Daemon:
        """Start a qtunnel command that goes on; it is ended with the site."""
        return self.start(host, [*self.command, *arguments], log=log, environment=self.environment(owner))

    def start(
        self,
        host: Namespace,
        command: Sequence[str],
        *,
        log: str,
        environment: Mapping[str, str] | None = None,
        input_text: str | None = None,
    ) -> Daemon:
        """Start any command in a namespace; it is ended with the site."""
        started = Daemon(
            host,
            command,
            log=self.directory / f"{log}.log",
            environment=environment,
            input_text=input_text,
            life_limit=self.life_limit,
        )
        self.daemons.append(started)
        return started

    def environment(self, owner: str) -> dict[str, str]:
        return {
            "QTUNNEL_CONFIG": "",
            "QTUNNEL_STATE_DIR": str(self.state),
            "QTUNNEL_PROFILE_DIR": str(self.directory / owner / "profiles"),
            "QTUNNEL_RUNTIME_DIR": str(self.directory / owner),
        }

    def status(self, owner: str, name: str) -> dict[str, Any] | None:
        """Ask a running tunnel, as `qtunnel status` does; None when none answers."""
        path = self.directory / owner / name / "control.sock"
        try:
            return asyncio.run(control_request(path, "status", timeout_s=5.0))
        except NotRunningError:
            return None

    # the end

    def logs(self) -> str:
        """Return the last lines each daemon has printed."""
        return "\n".join(
            "\n".join([f"--- {log.stem}", *log.read_text(errors="replace").splitlines()[-LOG_LINES:]])
            for log in sorted(self.directory.glob("*.log"))
        )

    def check_logs(self) -> None:
        """Fail if a program of ours has shown a traceback."""
        for log in self.directory.glob("*.log"):
            assert "Traceback" not in log.read_text(errors="replace"), log.stem

    def close(self) -> None:
        for each in reversed(self.daemons):
            each.destroy()
        for folder in self._named:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            NETNS_FILES.rmdir()

    def _connect(self, near: Namespace, far: Namespace, number: int, mtu: int) -> None:
        """Join two hosts; the far one sends everything it knows no better way for to the near one."""
        interface = f"to-{far.name.rpartition('-')[2]}"
        self.lab.join(near, interface, far, "eth0", mtu=mtu)
        join_hosts(near, interface, far, "eth0", number)


class Client:
    """`qtunnel join` and `qtunnel connect` in a namespace. name: of the user, of the profile, and of the log."""

    def __init__(self, site: Site, host: Namespace, name: str) -> None:
        self.site = site
        self.host = host
        self.name = name
        self._daemon: Daemon | None = None

    def join(self, link: str) -> None:
        """Make the profile of a join link, given on standard input."""
        self.site.qtunnel(
            self.host, ["join", "--name", self.name, "--replace"], owner=self.name, input_text=link + "\n"
        )

    @property
    def profile(self) -> Path:
        return self.site.directory / self.name / "profiles" / f"{self.name}.toml"

    @property
    def token(self) -> str:
        return str(tomllib.loads(self.profile.read_text())["token"])

    def start(self, *options: str) -> Daemon:
        """Start `qtunnel connect`, without waiting for anything."""
        self._daemon = self.site.daemon(
            self.host, ["connect", self.name, *options], log=f"connect-{self.name}", owner=self.name
        )
        return self._daemon

    def up(self, *options: str) -> None:
        """Join as the user of this name, start, and wait until the tunnel is up."""
        self.join(self.site.add_user(self.name))
        self.start(*options)
        self.wait_up()

    def wait_up(self, *, count: int = 1, timeout: float = PATIENCE) -> None:
        """Wait until the tunnel is up, for the count-th time in the life of the process."""
        self.daemon.wait_for(UP, count=count, timeout=timeout)

    @contextlib.contextmanager
    def running(self, *options: str) -> Iterator[Client]:
        """Have the tunnel up for the length of the block; the profile is there already."""
        self.start(*options)
        try:
            self.wait_up()
            yield self
        finally:
            self.daemon.destroy()

    @property
    def daemon(self) -> Daemon:
        assert self._daemon is not None
        return self._daemon

    def status(self) -> dict[str, Any]:
        status = self.site.status(self.name, self.name)
        assert status is not None, f"{self.name} is not running"
        return status

    def address(self, version: int) -> str:
        """Return the inner address the kernel has on the TUN."""
        shown = self.host.run(f"ip -o -{version} address show scope global")
        found = re.search(r"qtun\d+\s+inet6? ([0-9a-f.:]+)/", shown)
        assert found is not None, f"no IPv{version} address inside:\n{shown}"
        return found[1]

    def has_address(self, version: int) -> bool:
        return "qtun" in self.host.run(f"ip -o -{version} address show scope global")


def forward(host: Namespace) -> None:
    """Make a host a router."""
    host.sysctl("net/ipv4/ip_forward", "1")
    host.sysctl("net/ipv6/conf/all/forwarding", "1")


def join_hosts(
    near: Namespace, near_interface: str, far: Namespace, far_interface: str, number: int, *, default: bool = True
) -> None:
    """Give both ends of a link addresses of 198.18.number.0/24 and its IPv6 twin; near has the first."""
    for host, interface, last in ((near, near_interface, 1), (far, far_interface, 2)):
        host.add_address(interface, f"198.18.{number}.{last}/24")
        host.add_address(interface, f"2001:db8:{number}::{last}/64")
    if default:
        far.run(f"ip route add default via 198.18.{number}.1")
        far.run(f"ip -6 route add default via 2001:db8:{number}::1")
