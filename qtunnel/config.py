"""What a client and a server can be told, as frozen dataclasses; no file is read here.

The command line and the TOML file (qtunnel.cli.load) both end in these; a library user builds them directly.
Every check that needs no other machine is made in __post_init__ and raises ConfigError naming the field.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
)
from typing import Final

from qtunnel.errors import ConfigError

__all__ = [
    "DEFAULT_PORT",
    "ClientConfig",
    "HostConfig",
    "IPAddress",
    "IPInterface",
    "IPNetwork",
    "LabConfig",
    "PeerQuirks",
    "QuicConfig",
    "RouteMode",
    "ServerConfig",
    "SocketBuffer",
    "User",
    "token_digest",
]

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
IPInterface = IPv4Interface | IPv6Interface

DEFAULT_PORT: Final = 443
CONGESTION_CONTROLS: Final = ("cubic", "bbr", "reno", "none")
"""Names qtunnel.recovery knows. none sends without regard for others: for links that are all your own."""
MIN_LINK_MTU: Final = 1228
"""An IPv4 packet with a 1200-byte UDP payload, the least QUIC works with (RFC 9000 §14)."""


MAX_SOCKET_BUFFER: Final = 1 << 30
"""Bytes; the kernel counts in a C int, and doubles it."""
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\Z")
_PATH: Final = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)+/?\Z")  # RFC 3986 §3.3


class PeerQuirks(StrEnum):
    """Peers whose known breaches of an RFC are tolerated (docs/design/0006-peer-quirks.md)."""

    NONE = "none"
    MQVPN = "mqvpn"


class PathMtuSearch(StrEnum):
    """How the path's MTU is found (docs/design/0010-path-mtu.md)."""

    PARALLEL = "parallel"  # several probes a round trip
    SEQUENTIAL = "sequential"  # one, as RFC 8899 has it


class RouteMode(StrEnum):
    """Which routes a client installs, besides those listed."""

    ADVERTISED = "advertised"  # what the server advertises
    NONE = "none"  # only the ones listed in routes


@dataclass(frozen=True, slots=True, kw_only=True)
class QuicConfig:
    """QUIC settings both roles share. Times in seconds, sizes in bytes."""

    path_mtu: int | None = None
    """The path's MTU as an IP packet size; None: it is found by probing."""
    min_path_mtu: int | None = None
    """What the path carries for sure; nothing below is believed. None: what QUIC needs."""
    max_path_mtu: int | None = None
    """The most that is tried; None: what the outgoing interface takes."""
    path_mtu_search: PathMtuSearch = PathMtuSearch.PARALLEL
    idle_timeout: float = 30.0
    keep_alive: float = 10.0
    congestion_control: str = "cubic"
    gso: bool = True
    gro: bool = True
    receive_buffer: int = 4 * 1024 * 1024
    send_buffer: int = 4 * 1024 * 1024
    qlog_dir: str | None = None
    secrets_log_file: str | None = None

    def __post_init__(self) -> None:
        for name in ("path_mtu", "min_path_mtu", "max_path_mtu"):
            mtu = getattr(self, name)
            if mtu is not None and not MIN_LINK_MTU <= mtu <= 65535:
                raise ConfigError(
                    f"{mtu} is outside {MIN_LINK_MTU} to 65535 (QUIC needs {MIN_LINK_MTU} bytes on IPv4, "
                    "1248 on IPv6)",
                    field=name,
                )
        if self.min_path_mtu and self.max_path_mtu and self.min_path_mtu > self.max_path_mtu:
            raise ConfigError(
                f"{self.min_path_mtu} is above max_path_mtu ({self.max_path_mtu})", field="min_path_mtu"
            )
        if not 1.0 <= self.idle_timeout <= 600.0:
            raise ConfigError(f"{self.idle_timeout} is outside 1 to 600 seconds", field="idle_timeout")
        if not 0.5 <= self.keep_alive < self.idle_timeout:
            raise ConfigError(
                f"{self.keep_alive} must be at least 0.5 and below idle_timeout ({self.idle_timeout})",
                field="keep_alive",
            )
        if self.congestion_control not in CONGESTION_CONTROLS:
            raise ConfigError(
                f"{self.congestion_control!r} is none of {', '.join(CONGESTION_CONTROLS)}",
                field="congestion_control",
            )
        for name, size in (("receive_buffer", self.receive_buffer), ("send_buffer", self.send_buffer)):
            if not 1 <= size <= MAX_SOCKET_BUFFER:
                raise ConfigError(f"{size} is outside 1 to {MAX_SOCKET_BUFFER} bytes", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """What both roles set up on the host. Only used with a TUN."""

    tun_name: str = "qtun%d"
    """The kernel fills in %d with the first free number."""
    tun_offload: bool = True
    """Read and write many packets of a flow at once, where the kernel can."""
    drop_privileges: bool = True

    def __post_init__(self) -> None:
        if not 0 < len(self.tun_name.replace("%d", "0")) <= 15 or "/" in self.tun_name:
            raise ConfigError(
                f"{self.tun_name!r} is no interface name (1 to 15 characters, no slash)", field="tun_name"
            )


class BlackHoles(StrEnum):
    """How a path that became narrower is found."""

    CONFIRM = "confirm"
    LOSS_COUNT = "loss-count"  # believe losses, without asking
    OFF = "off"  # never


class SocketBuffer(StrEnum):
    """Where the size of a UDP socket's receive buffer comes from."""

    CONFIGURED = "configured"  # QuicConfig.receive_buffer
    DEFAULT = "default"  # the kernel's own, net.core.rmem_default


@dataclass(frozen=True, slots=True, kw_only=True)
class LabConfig:
    """Cures that an experiment may switch off, to show the fault they cure; never for use.

    The command line takes this table only together with --lab.
    """

    rcvbuf: SocketBuffer = SocketBuffer.CONFIGURED
    black_holes: BlackHoles = BlackHoles.CONFIRM

    def receive_buffer(self, configured: int) -> int | None:
        """Return how many bytes to ask for, of those configured; None: leave the kernel's."""
        return None if self.rcvbuf is SocketBuffer.DEFAULT else configured

    def switched_off(self) -> list[str]:
        """Return each cure that is off, as key=value."""
        off = [] if self.rcvbuf is SocketBuffer.CONFIGURED else [f"rcvbuf={self.rcvbuf}"]
        return off if self.black_holes is BlackHoles.CONFIRM else [*off, f"black_holes={self.black_holes}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """One tunnel as its client sees it."""

    server: str
    """Host name or address; a name is resolved to both families at each attempt."""
    port: int = DEFAULT_PORT
    server_name: str
    """The name sent as SNI and checked against the certificate; never an IP address."""
    token: str = field(repr=False)
    fingerprint: str | None = None
    """SHA-256 of the server's certificate (DER), 64 hex digits; None: the CAs decide."""
    ca_file: str | None = None
    """CA certificates in PEM; None: the system's."""
    uri_template: str | None = None
    """RFC 9484 §3; None: the default of the well-known path."""
    target: str = "*"
    ipproto: str = "*"
    routes: tuple[IPNetwork, ...] = ()
    route_mode: RouteMode = RouteMode.ADVERTISED
    route_table: int = 51821
    rule_priority: int = 5180
    """Three rules are added, from this priority upwards (docs/design/0005-host-side.md)."""
    advertise: tuple[IPNetwork, ...] = ()
    """Networks behind this client, offered to the server; it accepts those permitted for the user."""
    masquerade: bool = False
    """Hide a LAN behind this client's address: nft masquerade on the TUN."""
    want_ipv4: bool = True
    want_ipv6: bool = True
    peer_quirks: PeerQuirks = PeerQuirks.NONE
    handshake_timeout: float = 5.0
    reconnect: bool = True
    reconnect_min: float = 0.5
    reconnect_max: float = 30.0
    quic: QuicConfig = field(default_factory=QuicConfig)
    host: HostConfig = field(default_factory=HostConfig)
    lab: LabConfig = field(default_factory=LabConfig)

    def __post_init__(self) -> None:
        _check_server(self.server)
        _check_port(self.port)
        _check_server_name(self.server_name)
        if not self.token or not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise ConfigError("must be printable ASCII without spaces", field="token")
        if self.fingerprint is not None and not _is_fingerprint(self.fingerprint):
            raise ConfigError("must be 64 hexadecimal digits (SHA-256)", field="fingerprint")
        if self.fingerprint is not None and self.ca_file is not None:
            raise ConfigError("cannot be combined with fingerprint", field="ca_file")
        if not (self.want_ipv4 or self.want_ipv6):
            raise ConfigError("at least one of want_ipv4 and want_ipv6 must be true", field="want_ipv4")
        if not 1 <= self.route_table <= 0xFFFFFFFF or self.route_table in (253, 254, 255):
            raise ConfigError(f"{self.route_table} is reserved or out of range", field="route_table")
        if not 1 <= self.rule_priority <= 32763:
            raise ConfigError(f"{self.rule_priority} is outside 1 to 32763", field="rule_priority")
        if not 0 < self.handshake_timeout < math.inf:
            raise ConfigError("must be more than 0, and a number of seconds", field="handshake_timeout")
        if not 0.05 <= self.reconnect_min <= self.reconnect_max < math.inf:
            raise ConfigError(
                "must be at least 0.05 and at most reconnect_max, both numbers of seconds", field="reconnect_min"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user of a server. The token itself is never kept: only its SHA-256, 64 hex digits."""

    name: str
    token_sha256: str = field(repr=False)
    prefixes: tuple[IPNetwork, ...] = ()
    """Networks this user's client may carry (advertise and send from), besides its own addresses."""

    def __post_init__(self) -> None:
        allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
        if not 1 <= len(self.name) <= 64 or self.name.strip(allowed):
            raise ConfigError(
                f"{self.name!r} is no user name (1 to 64 letters, digits, dot, dash, underscore)",
                field="name",
            )
        if not _is_fingerprint(self.token_sha256):
            raise ConfigError("must be 64 hexadecimal digits (SHA-256)", field="token_sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One server. Users and their addresses are not configuration: see qtunnel.state."""

    listen: tuple[str, ...] = ("0.0.0.0", "::")
    """Addresses to bind, one socket each; IPv6 ones never serve IPv4 (D5)."""
    port: int = DEFAULT_PORT
    server_name: str = "qtunnel.invalid"
    pool4: IPv4Interface | None = None
    """The server's own inner address and the pool around it, such as 10.77.1.1/24."""
    pool6: IPv6Interface | None = None
    certificate: str | None = None
    private_key: str | None = None
    advertise: tuple[IPNetwork, ...] = ()
    """Networks clients may reach, besides the pools; 0.0.0.0/0 and ::/0 for everything."""
    masquerade: bool = False
    """nft masquerade (and NAT66) for clients leaving by other interfaces."""
    forward: bool = False
    """Switch the kernel's forwarding on while running; implied by masquerade and advertise."""
    client_to_client: bool = False
    max_sessions: int = 1024
    max_handshakes: int = 256
    retry_threshold: int = 32
    """Handshakes under way above which new clients must prove their address first (Retry, RFC 9000 §8.1.2)."""
    path_prefix: str = "/.well-known/masque/ip"
    peer_quirks: PeerQuirks = PeerQuirks.NONE
    icmp_rate: float = 100.0
    icmp_burst: int = 50
    quic: QuicConfig = field(default_factory=QuicConfig)
    host: HostConfig = field(default_factory=HostConfig)
    lab: LabConfig = field(default_factory=LabConfig)

    def __post_init__(self) -> None:
        if not self.listen:
            raise ConfigError("is empty; give at least one address", field="listen")
        for address in self.listen:
            if not _is_address(address):
                raise ConfigError(f"{address!r} is not an IP address", field="listen")
        if self.port != 0:  # 0: a free one, for tests and embedding
            _check_port(self.port)
        if self.pool4 is None and self.pool6 is None:
            raise ConfigError("at least one of pool4 and pool6 is needed", field="pool4")
        _check_server_name(self.server_name)
        _check_pool("pool4", self.pool4, longest=30)
        _check_pool("pool6", self.pool6, longest=126)
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("certificate and private_key go together", field="certificate")
        if not _PATH.match(self.path_prefix):
            raise ConfigError(
                f"{self.path_prefix!r} is no path such as /.well-known/masque/ip", field="path_prefix"
            )
        for name, value, least in (
            ("max_sessions", self.max_sessions, 1),
            ("max_handshakes", self.max_handshakes, 1),
            ("retry_threshold", self.retry_threshold, 0),
            ("icmp_rate", self.icmp_rate, 0),
            ("icmp_burst", self.icmp_burst, 0),
        ):
            if not least <= value < math.inf:  # TOML knows nan and inf
                raise ConfigError(f"must be a number of at least {least}", field=name)


def token_digest(token: str) -> str:
    """Return what is kept of a token: the SHA-256 of its characters, 64 hex digits.

    A plain hash is enough: a token is 256 random bits, there is nothing to guess.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _check_port(port: int) -> None:
    if not 1 <= port <= 65535:
        raise ConfigError(f"{port} is outside 1 to 65535", field="port")


def _check_server(host: str) -> None:
    if not host:
        raise ConfigError("is empty; give the server's name or address", field="server")
    try:
        address = ip_address(host)
    except ValueError:
        return  # a name
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    why = None
    if address.is_unspecified:
        why = "means any address of a host that listens, and none to go to"
    elif address.is_multicast or address == IPv4Address("255.255.255.255"):
        why = "is for many hosts at once"
    elif isinstance(address, IPv6Address) and address.is_link_local and address.scope_id is None:
        raise ConfigError(
            f"{host} is of one link only; add which, as in {host}%eth0, or give another address", field="server"
        )
    if why is not None:
        raise ConfigError(f"{host} {why}; give the address or name of the server itself", field="server")


def _check_server_name(name: str) -> None:
    if _is_address(name):
        raise ConfigError(
            f"{name!r} is not a host name; an address cannot be sent as SNI (RFC 6066 §3)", field="server_name"
        )
    if len(name) > 253 or not all(_LABEL.match(label) for label in name.split(".")):
        raise ConfigError(
            f"{name!r} is not a host name: letters, digits and dashes, in labels of at most 63 characters with "
            "dots between (an international one in its xn-- form)",
            field="server_name",
        )


def _check_pool(name: str, pool: IPInterface | None, *, longest: int) -> None:
    if pool is None:
        return
    network, address = pool.network, pool.ip
    if network.prefixlen > longest:
        raise ConfigError(f"{pool} holds no client; use a /{longest} or larger", field=name)
    for each in (address, network.network_address, network.broadcast_address):
        if each.is_multicast or each.is_loopback or each.is_link_local or not network.prefixlen:
            raise ConfigError(f"{pool} has addresses that hosts cannot have", field=name)
    if address == network.network_address or (address.version == 4 and address == network.broadcast_address):
        raise ConfigError(
            f"{address} is the first or the last address of {network}, which no host has; take another, such as "
            f"{network.network_address + 1}/{network.prefixlen}",
            field=name,
        )


def _is_address(text: str) -> bool:
    for kind in (IPv4Address, IPv6Address):
        try:
            kind(text)
        except ValueError:
            continue
        return True
    return False


def _is_fingerprint(text: str) -> bool:
    return len(text) == 64 and not text.strip("0123456789abcdef")
