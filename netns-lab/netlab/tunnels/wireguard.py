"""WireGuard in user space, by wireguard-go: Debian's package, or another binary named by WIREGUARD_GO."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import IPv4Interface, IPv6Interface
from types import MappingProxyType
from typing import ClassVar, Final

from netlab.addresses import EVERYTHING, IPAddress
from netlab.command import run
from netlab.daemon import Daemon, wait_until
from netlab.host import Host
from netlab.tunnels.base import Feature, Inner, Tunnel

POOL4: Final = IPv4Interface("10.9.0.1/16")
POOL6: Final = IPv6Interface("fd09::1/64")
PORT: Final = 51820
DEVICE: Final = "wg0"
BINARY_VARIABLE: Final = "WIREGUARD_GO"


class WireGuardGo(Tunnel):
    """One device on each host, named after run and host: the control sockets share a directory."""

    name: ClassVar[str] = "wireguard-go"
    about: ClassVar[str] = "WireGuard in user space, by wireguard-go"
    lacks: ClassVar[frozenset[Feature]] = frozenset({Feature.NAMES, Feature.ABLATIONS})
    packages: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"wg": "wireguard-tools"} | ({} if BINARY_VARIABLE in os.environ else {"wireguard-go": "wireguard-go"})
    )

    def start_server(self) -> None:
        """Start the server's device."""
        self._server_key, self._server_public = _keys()
        self._server_device = self._device(self.site.server)
        self.server = self._start(self.site.server, self._server_device)
        self._set(self.site.server, self._server_device, f"private-key {{}} listen-port {PORT}", self._server_key)
        self._address(self.site.server, self._server_device, (POOL4, POOL6))

    def start_client(self, host: Host, *, outer: int | None = None) -> Inner:
        """Start a client's device and tell both sides about the other."""
        number = len(self.clients) + 2
        device = self._device(host)
        key, public = _keys()
        addresses = (POOL4.ip + number - 1, POOL6.ip + number - 1)
        daemon = self._start(host, device)
        allowed = ",".join(f"{address}/{address.max_prefixlen}" for address in addresses)
        self.site.server.run(["wg", "set", self._server_device, "peer", public, "allowed-ips", allowed])
        server = self.site.server_address(outer or self.options.outer, host)
        endpoint = f"[{server}]:{PORT}" if server.version == 6 else f"{server}:{PORT}"
        everything = ",".join(str(network) for network in EVERYTHING.values())
        self._set(host, device, "private-key {}", key)
        host.run(
            ["wg", "set", device, "peer", self._server_public, "allowed-ips", everything, "endpoint", endpoint]
        )
        self._address(host, device, (IPv4Interface(f"{addresses[0]}/16"), IPv6Interface(f"{addresses[1]}/64")))
        if self.site.lan is not None:
            for network in (self.site.lan.subnet.ipv4, self.site.lan.subnet.ipv6):
                host.route(network, device=device)
        inner = Inner(host=host, device=device, ipv4=addresses[0], ipv6=addresses[1], daemon=daemon)
        self.clients.append(inner)
        return inner

    def server_inner(self, version: int) -> IPAddress:
        """Return the server's address inside."""
        return POOL4.ip if version == 4 else POOL6.ip

    def _device(self, host: Host) -> str:
        return f"wg{self.site.network.tag}{host.name}"[:15]

    def _start(self, host: Host, device: str) -> Daemon:
        binary = os.environ.get(BINARY_VARIABLE, "wireguard-go")
        daemon = host.start(
            [binary, "-f", device], name="wireguard-go", env={"WG_I_PREFER_BUGGY_USERSPACE_TO_POLISHED_KMOD": "1"}
        )
        wait_until(
            lambda: host.run(["wg", "show", device], check=False).ok, f"device {device}", daemon=daemon, timeout=10
        )
        return daemon

    def _set(self, host: Host, device: str, what: str, key: str) -> None:
        """Set something that needs a private key, which goes through a file, not the command line."""
        file = self.site.network.directory / f"{device}.key"
        file.touch(mode=0o600)
        file.write_text(key)
        host.run(["wg", "set", device, *what.format(file).split()])

    def _address(self, host: Host, device: str, addresses: tuple[IPv4Interface, IPv6Interface]) -> None:
        for address in addresses:
            host.add_address(device, address)
        host.set_up(device)


def _keys() -> tuple[str, str]:
    private = run(["wg", "genkey"]).stdout.strip()
    return private, run(["wg", "pubkey"], stdin=private).stdout.strip()
