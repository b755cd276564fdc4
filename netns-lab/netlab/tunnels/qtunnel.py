"""qtunnel, from this checkout, through its command line as its users see it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import ClassVar, Final

from netlab.addresses import IPAddress, IPNetwork
from netlab.command import Completed
from netlab.daemon import Daemon, wait_until
from netlab.host import Host
from netlab.tunnels.base import Inner, Tunnel
from netlab.tunnels.device import wait_for_device

COMMAND: Final = (sys.executable, "-m", "qtunnel")
PORT: Final = 4433
POOL4: Final = IPv4Interface("10.77.1.1/24")
POOL6: Final = IPv6Interface("fd77:1::1/64")
PROFILE: Final = "lab"
SERVER_NAME: Final = "server.lab.example"
FIRST_USER: Final = "user1"


class QTunnelServer:
    """`qtunnel serve` on a host, with its state in a directory of the run."""

    def __init__(self, host: Host, directory: Path) -> None:
        self.host = host
        self._state = directory / f"{host.name}-state"
        self._env = {"QTUNNEL_RUNTIME_DIR": str(directory / f"{host.name}-run")}
        self._state_arguments = ("--state-dir", str(self._state))
        self._daemon: Daemon | None = None

    @property
    def daemon(self) -> Daemon:
        """Its process; start() comes first."""
        assert self._daemon is not None
        return self._daemon

    def start(
        self, public: IPAddress | str, *, advertise: Sequence[IPNetwork] = (), options: Sequence[str] = ()
    ) -> None:
        """Start it, known by a public address or name, and wait until it serves; advertise: networks behind it."""
        name = f"[{public}]:{PORT}" if ":" in str(public) else f"{public}:{PORT}"
        arguments = [*self._state_arguments, "--port", str(PORT), "--public-name", name]
        arguments += ["--pool4", str(POOL4), "--pool6", str(POOL6)]
        for network in advertise:
            arguments += ["--advertise", str(network)]
        self._daemon = self.host.start([*COMMAND, "serve", *arguments, *options], name="serve", env=self._env)
        self._daemon.wait_for(r"serving on", timeout=20)

    def first_link_file(self) -> Path:
        """Wait for the file, for root only, that the first start writes its join link to."""
        file = self._state / "join" / f"{FIRST_USER}.link"
        wait_until(file.exists, f"join link {file.name}", daemon=self.daemon, timeout=10)
        return file

    def add_user(self, name: str) -> str:
        """Add a user and return the join link."""
        self.host.run([*COMMAND, "user", "add", name, *self._state_arguments], env=self._env)
        return (self._state / "join" / f"{name}.link").read_text().strip()

    def status(self) -> Completed:
        """Ask it for its status."""
        return self.host.run([*COMMAND, "status"], env=self._env, check=False)


class QTunnelClient:
    """`qtunnel join` and `qtunnel connect` on a host."""

    def __init__(self, host: Host, directory: Path) -> None:
        self.host = host
        self.profiles = directory / f"{host.name}-profiles"
        self._env = {
            "QTUNNEL_PROFILE_DIR": str(self.profiles),
            "QTUNNEL_RUNTIME_DIR": str(directory / f"{host.name}-run"),
        }
        self._daemon: Daemon | None = None

    @property
    def daemon(self) -> Daemon:
        """Its process; connect() comes first."""
        assert self._daemon is not None
        return self._daemon

    def join(self, link: str) -> None:
        """Take a join link from standard input and keep it as a profile."""
        self.host.run([*COMMAND, "join", "--name", PROFILE], stdin=link + "\n", env=self._env)

    def connect(self, options: Sequence[str] = ()) -> None:
        """Start the tunnel of the profile."""
        self._daemon = self.host.start([*COMMAND, "connect", PROFILE, *options], name="connect", env=self._env)

    def wait(self, *, timeout: float = 20.0) -> Inner:
        """Wait until its device has an address of each family."""
        return wait_for_device(
            self.host, networks=(POOL4.network, POOL6.network), daemon=self.daemon, timeout=timeout
        )

    def status(self) -> Completed:
        """Ask it for its status."""
        return self.host.run([*COMMAND, "status"], env=self._env, check=False)

    def token(self) -> str:
        """Return the secret of the profile, to look for where it must not be."""
        text = (self.profiles / f"{PROFILE}.toml").read_text()
        return str(tomllib.loads(text)["token"])


class QTunnel(Tunnel):
    """One server; each client is a user of its own, as one user's second client replaces the first."""

    name: ClassVar[str] = "qtunnel"
    about: ClassVar[str] = "this checkout"

    def start_server(self) -> None:
        """Start it for the first time."""
        directory = self.site.network.directory
        lan = self.site.lan
        self._serving = QTunnelServer(self.site.server, directory)
        self._serving.start(
            SERVER_NAME if self.options.by_name else self.site.server_address(self.options.outer),
            advertise=() if lan is None else (lan.subnet.ipv4, lan.subnet.ipv6),
            options=self._arguments(),
        )
        self.server = self._serving.daemon
        self._links = [self._serving.first_link_file().read_text().strip()]

    def start_client(self, host: Host, *, outer: int | None = None) -> Inner:
        """Join with the first user's link, or a new user's, and connect."""
        if self.options.by_name:
            versions = (4, 6) if outer is None else (outer,)
            host.set_names({SERVER_NAME: [self.site.server_address(version, host) for version in versions]})
        link = self._links.pop() if self._links else self._serving.add_user(f"user-{host.name}")
        client = QTunnelClient(host, self.site.network.directory)
        client.join(link)
        client.connect(self._arguments())
        inner = client.wait()
        self.clients.append(inner)
        return inner

    def server_inner(self, version: int) -> IPAddress:
        """Return the server's address inside."""
        return POOL4.ip if version == 4 else POOL6.ip

    def _arguments(self) -> list[str]:
        options = self.options
        return [] if options.path_mtu is None else ["--path-mtu", str(options.path_mtu)]
