"""qtunnel, from this checkout."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_interface
from pathlib import Path
from typing import Final

from netlab.addresses import IPAddress, IPNetwork
from netlab.command import Completed
from netlab.daemon import Daemon, wait_until
from netlab.errors import NotReadyError
from netlab.host import Host

COMMAND: Final = (sys.executable, "-m", "qtunnel")
PORT: Final = 4433
POOL4: Final = IPv4Interface("10.77.1.1/24")
POOL6: Final = IPv6Interface("fd77:1::1/64")
PROFILE: Final = "lab"


@dataclass(frozen=True, slots=True)
class InnerAddresses:
    """What a client got: its TUN device and its addresses."""

    device: str
    ipv4: IPv4Address | None
    ipv6: IPv6Address | None


class QTunnelServer:
    """`qtunnel serve` on a host, with its state in a directory of the run."""

    def __init__(self, host: Host, directory: Path) -> None:
        self.host = host
        self._state = directory / f"{host.name}-state"
        self._env = {"QTUNNEL_RUNTIME_DIR": str(directory / f"{host.name}-run")}
        self.daemon: Daemon | None = None

    def start(
        self, public: IPAddress, *, advertise: Sequence[IPNetwork] = (), options: Sequence[str] = ()
    ) -> None:
        """Start it, reachable at a public address; the networks advertised are those behind it."""
        name = f"[{public}]:{PORT}" if public.version == 6 else f"{public}:{PORT}"
        arguments = ["--state-dir", str(self._state), "--port", str(PORT), "--public-name", name]
        arguments += ["--pool4", str(POOL4), "--pool6", str(POOL6)]
        for network in advertise:
            arguments += ["--advertise", str(network)]
        self.daemon = self.host.start([*COMMAND, "serve", *arguments, *options], name="serve", env=self._env)

    def inner(self, version: int) -> IPAddress:
        """Return the server's own address inside the tunnel."""
        return POOL4.ip if version == 4 else POOL6.ip

    def first_link_file(self) -> Path:
        """Return the file, for root only, that the first start wrote its join link to."""
        for file in (self._state / "join").glob("*.link"):
            return file
        raise NotReadyError(f"no join link in {self._state}")

    def wait_until_listening(self, *, timeout: float) -> None:
        """Wait until its UDP port is open; NotReadyError if it ends or takes too long."""
        assert self.daemon is not None
        wait_until(
            lambda: bool(self.host.run(["ss", "-Hlun", f"sport = :{PORT}"], check=False).stdout),
            f"UDP port {PORT} on {self.host.name}",
            daemon=self.daemon,
            timeout=timeout,
        )

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
        self.daemon: Daemon | None = None

    def join(self, link: str) -> Completed:
        """Take a join link from standard input and keep it as a profile."""
        return self.host.run([*COMMAND, "join", "--name", PROFILE], stdin=link + "\n", env=self._env)

    def connect(self, options: Sequence[str] = ()) -> None:
        """Start the tunnel of the profile."""
        self.daemon = self.host.start([*COMMAND, "connect", PROFILE, *options], name="connect", env=self._env)

    def status(self) -> Completed:
        """Ask it for its status."""
        return self.host.run([*COMMAND, "status"], env=self._env, check=False)

    def wait_for_addresses(self, *, timeout: float) -> InnerAddresses:
        """Wait until its TUN has an address of each family; NotReadyError if it ends or takes too long."""
        assert self.daemon is not None
        wait_until(
            lambda: self._addresses() is not None,
            f"addresses inside the tunnel on {self.host.name}",
            daemon=self.daemon,
            timeout=timeout,
        )
        found = self._addresses()
        assert found is not None
        return found

    def token(self) -> str:
        """Return the secret of the profile, to look for where it must not be."""
        text = (self.profiles / f"{PROFILE}.toml").read_text()
        return str(tomllib.loads(text)["token"])

    def _addresses(self) -> InnerAddresses | None:
        found: dict[int, tuple[str, IPAddress]] = {}
        for line in self.host.run(["ip", "-o", "addr"]).stdout.splitlines():
            device, address = line.split()[1], ip_interface(line.split()[3]).ip
            if address in POOL4.network or address in POOL6.network:
                found[address.version] = (device, address)
        if len(found) < 2:
            return None
        return InnerAddresses(found[4][0], IPv4Address(found[4][1]), IPv6Address(found[6][1]))
