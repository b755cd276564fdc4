"""mqvpn, the C peer: its binary is named by the environment variable QTUNNEL_MQVPN (or --mqvpn)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv6Interface
from typing import ClassVar, Final

from netlab.addresses import IPAddress
from netlab.command import run
from netlab.errors import LabError
from netlab.host import Host
from netlab.tunnels.base import Feature, Inner, Tunnel
from netlab.tunnels.device import wait_for_device

POOL4: Final = IPv4Interface("10.8.0.1/24")
POOL6: Final = IPv6Interface("fd08:1::1/112")
PORT: Final = 4433
BINARY_VARIABLE: Final = "QTUNNEL_MQVPN"


class Mqvpn(Tunnel):
    """Multipath QUIC VPN in C; its key is on the command line, as it takes it nowhere else."""

    name: ClassVar[str] = "mqvpn"
    about: ClassVar[str] = "the C peer, binary given by the environment variable QTUNNEL_MQVPN"
    lacks: ClassVar[frozenset[Feature]] = frozenset({Feature.NAMES, Feature.ABLATIONS})
    extra: ClassVar[Sequence[str]] = ()

    @classmethod
    def install(cls) -> None:
        """Check that there is a binary."""
        if shutil.which(os.environ.get(BINARY_VARIABLE, "mqvpn")) is None:
            raise LabError(f"no mqvpn here; build it and name the binary: {BINARY_VARIABLE}=/path/to/mqvpn")

    def start_server(self) -> None:
        """Start the server with a certificate of this run."""
        files = self.site.network.directory
        run(
            [
                *[
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:prime256v1",
                    "-nodes",
                ],
                *("-keyout", str(files / "mqvpn.key"), "-out", str(files / "mqvpn.pem")),
                *("-days", "1", "-subj", "/CN=mqvpn-lab"),
            ]
        )
        self._key = run([_binary(), "--genkey"], check=False).stdout.strip() or "lab-key"
        listen = f"[::]:{PORT}" if self.options.outer == 6 or self.options.mixed else f"0.0.0.0:{PORT}"
        self.server = self.site.server.start(
            [
                *(_binary(), "--mode", "server", "--listen", listen, "--subnet", str(POOL4.network)),
                *("--subnet6", str(POOL6.network)),
                *("--cert", str(files / "mqvpn.pem"), "--key", str(files / "mqvpn.key"), "--auth-key", self._key),
                *("--max-clients", "64", *self.extra),
            ],
            name="mqvpn-server",
        )

    def start_client(self, host: Host, *, outer: int | None = None) -> Inner:
        """Start a client, over every link it has."""
        server = self.site.server_address(outer or self.options.outer, host)
        remote = f"[{server}]:{PORT}" if server.version == 6 else f"{server}:{PORT}"
        paths = [path.at_client.device for path in self.site.paths.values() if path.at_client.host is host]
        daemon = host.start(
            [
                *(_binary(), "--mode", "client", "--server", remote, "--auth-key", self._key, "--insecure"),
                *(part for device in (paths if len(paths) > 1 else ()) for part in ("--path", device)),
                *self.extra,
            ],
            name="mqvpn-client",
        )
        inner = wait_for_device(host, networks=(POOL4.network, POOL6.network), daemon=daemon, timeout=20)
        self.clients.append(inner)
        return inner

    def server_inner(self, version: int) -> IPAddress:
        """Return the server's address inside."""
        return POOL4.ip if version == 4 else POOL6.ip


class MqvpnCubic(Mqvpn):
    """The same with CUBIC outside instead of its default."""

    name: ClassVar[str] = "mqvpn-cubic"
    about: ClassVar[str] = "mqvpn with --cc cubic"
    extra: ClassVar[Sequence[str]] = ("--cc", "cubic")


def _binary() -> str:
    return os.environ.get(BINARY_VARIABLE, "mqvpn")
