"""qtunnel, from this checkout, through its command line as its users see it."""

from __future__ import annotations

import json
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
from netlab.tunnels.base import Feature, Inner, Tunnel
from netlab.tunnels.device import wait_for_device
from qtunnel import config

COMMAND: Final = (sys.executable, "-m", "qtunnel")
PORT: Final = 4433
POOL4: Final = IPv4Interface("10.77.1.1/24")
POOL6: Final = IPv6Interface("fd77:1::1/64")
PROFILE: Final = "lab"
SERVER_NAME: Final = "server.lab.example"
FIRST_USER: Final = "user1"
HANDSHAKES_AT_A_TIME: Final = 4
LAB_DIRECTORY: Final = Path(__file__).resolve().parents[2]


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

    def add_to_profile(self, text: str) -> None:
        """Add settings, as TOML, to the profile."""
        with (self.profiles / f"{PROFILE}.toml").open("a") as file:
            file.write(f"\n{text}" if text else "")

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


def _missing() -> frozenset[Feature]:
    """Return what this checkout lacks: an older one has no [lab] table in its configuration."""
    return frozenset() if hasattr(config, "LabConfig") else frozenset({Feature.ABLATIONS})


class QTunnel(Tunnel):
    """One server; each client is a user of its own, as one user's second client replaces the first.

    An ablation is a key of the table [lab] in the configuration (the server's file, the client's profile), which
    qtunnel takes only with the flag --lab; it is in no help text.
    """

    name: ClassVar[str] = "qtunnel"
    about: ClassVar[str] = "this checkout"
    lacks: ClassVar[frozenset[Feature]] = _missing()

    def start_server(self) -> None:
        """Start it for the first time."""
        directory = self.site.network.directory
        lan = self.site.lan
        self._serving = QTunnelServer(self.site.server, directory)
        self._serving.start(
            SERVER_NAME if self._by_name else self.site.server_address(self.options.outer),
            advertise=() if lan is None else (lan.subnet.ipv4, lan.subnet.ipv6),
            options=self._server_arguments(),
        )
        self.server = self._serving.daemon
        self._links = [self._serving.first_link_file().read_text().strip()]

    def start_client(self, host: Host, *, outer: int | None = None) -> Inner:
        """Join with the first user's link, or a new user's, and connect."""
        self._tell_name(host, (4, 6) if outer is None else (outer,))
        link = self._links.pop() if self._links else self._serving.add_user(f"user-{host.name}")
        client = QTunnelClient(host, self.site.network.directory)
        client.join(link)
        client.add_to_profile(self._lab_table())
        client.connect(self._arguments())
        inner = client.wait()
        self.clients.append(inner)
        return inner

    def server_inner(self, version: int) -> IPAddress:
        """Return the server's address inside."""
        return POOL4.ip if version == 4 else POOL6.ip

    @property
    def _by_name(self) -> bool:
        """Whether clients get the server's name; in mixed use each client's host resolves it to one family."""
        return self.options.by_name or self.options.mixed

    def _tell_name(self, host: Host, versions: Sequence[int]) -> None:
        if self._by_name:
            host.set_names({SERVER_NAME: [self.site.server_address(version, host) for version in versions]})

    def handshake_rate(self, count: int) -> float:
        """Connect and close again and again, in one process without TUN devices, a few at a time."""
        links = [self._serving.add_user(f"handshake-{number}") for number in range(HANDSHAKES_AT_A_TIME)]
        host = self.site.client
        self._tell_name(host, (4,))
        done = host.run(
            [sys.executable, "-m", "netlab.tunnels.qtunnel_handshakes", str(count)],
            stdin="\n".join(links) + "\n",
            env={"PYTHONPATH": str(LAB_DIRECTORY)},
            timeout=60 + count,
        )
        return float(done.stdout)

    def _arguments(self) -> list[str]:
        options = self.options
        arguments = [] if options.path_mtu is None else ["--path-mtu", str(options.path_mtu)]
        return arguments + (["--lab"] if options.ablation else [])

    def _server_arguments(self) -> list[str]:
        if not self.options.ablation:
            return self._arguments()
        file = self.site.network.directory / "server.toml"
        file.write_text(self._lab_table())
        file.chmod(0o600)
        return [*self._arguments(), "--config", str(file)]

    def _lab_table(self) -> str:
        settings = [f"{key} = {json.dumps(value)}" for key, value in self.options.ablation.items()]
        return "\n".join(["[lab]", *settings]) + "\n" if settings else ""
