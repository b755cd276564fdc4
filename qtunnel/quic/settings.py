"""What a connection and an endpoint are told, as frozen dataclasses. Times in seconds, sizes in bytes.

Nothing here reads a file or a random source: keys, certificates and randomness are handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from qtunnel.errors import ConfigError
from qtunnel.pmtud.config import PMTU_RAISE_TIMER
from qtunnel.quic.multipath.path_ids import MAX_ALIVE
from qtunnel.quic.segmented_sends import GsoVerdict

__all__ = [
    "ALPN",
    "MIN_UDP_PAYLOAD",
    "ConnectionSettings",
    "EndpointSettings",
    "LineSink",
    "PathMtuSettings",
    "RandomBytes",
    "TransportSettings",
]

ALPN: Final = ("h3",)
MIN_UDP_PAYLOAD: Final = 1200
"""The UDP payload every QUIC path carries (RFC 9000 §14), used until the handshake is confirmed."""

RandomBytes = Callable[[int], bytes]
"""Returns that many unpredictable bytes, as os.urandom does; a simulation hands in a seeded one."""

LineSink = Callable[[str], None]
"""Takes one line of text, without the line end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathMtuSettings:
    """How the size of packets is found. All sizes are link MTUs: bytes of IP packets.

    interface_mtu: of the local interface. The rest as in pmtud.config.PathMtuConfig.
    """

    interface_mtu: int = 1500
    ceiling: int | None = None
    floor: int | None = None
    remembered: int | None = None
    search: Literal["parallel", "sequential"] = "parallel"
    black_hole: Literal["confirm", "off", "loss_count"] = "confirm"
    raise_interval: float = PMTU_RAISE_TIMER


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    """What both roles share."""

    random_bytes: RandomBytes = field(repr=False)
    alpn: tuple[str, ...] = ALPN
    max_udp_payload: int = MIN_UDP_PAYLOAD
    """The UDP payload the path is told to carry, or with path_mtu what the interface takes at most. Also
    advertised as max_udp_payload_size (RFC 9000 §18.2)."""
    path_mtu: PathMtuSettings | None = None
    """Find the path's MTU by probing, once the handshake is confirmed; None: max_udp_payload is told."""
    idle_timeout: float = 30.0
    keep_alive: float | None = 10.0
    """PING after this long without a packet from the peer; None: never."""
    handshake_timeout: float = 5.0
    congestion_control: str = "cubic"
    packet_plane: bool = True
    """Send and receive 1-RTT packets in bursts of our own; False leaves them to aioquic, for comparison."""
    key_update_after: int = 1 << 22
    """Packets sealed with one key before the next is used (RFC 9001 §6.6 allows twice as many)."""
    max_datagram_frame_size: int = 65535
    """Advertised limit on DATAGRAM frames (RFC 9221 §3)."""
    initial_max_path_id: int | None = None
    """Offered to the peer (RFC 10069 §2.1): the largest path id it may use at first; None: no multipath."""
    queue_packets: int = 512
    """Packets waiting to be sent at most; beyond it they are dropped and counted."""
    queue_delay: float = 0.5
    """A packet that waited longer than this is dropped and counted (RFC 9221 §5.3 leaves it to us)."""
    qlog: Callable[[str], LineSink] | None = field(default=None, repr=False)
    """Called with a trace's name per connection; returns where its JSON lines go. None: no qlog."""
    gso_verdict: GsoVerdict = field(default_factory=GsoVerdict)
    """What the connections of this host find out about segmented sends; shared by them all."""
    secrets: LineSink | None = field(default=None, repr=False)
    """Takes lines in the SSLKEYLOGFILE format. None: secrets never leave."""

    def __post_init__(self) -> None:
        if not MIN_UDP_PAYLOAD <= self.max_udp_payload <= 65527:
            raise ConfigError(
                f"{self.max_udp_payload} is outside {MIN_UDP_PAYLOAD} to 65527", field="max_udp_payload"
            )
        if self.queue_packets < 1:
            raise ConfigError("must be at least 1", field="queue_packets")
        if self.initial_max_path_id is not None and not 0 <= self.initial_max_path_id <= MAX_ALIVE - 1:
            raise ConfigError(
                f"{self.initial_max_path_id} is outside 0 to {MAX_ALIVE - 1}", field="initial_max_path_id"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings(TransportSettings):
    """One connection as its client sees it."""

    server_name: str
    """Sent as SNI and, without a fingerprint, checked against the certificate. A name, never an address; empty
    only where nothing is verified: then there is no SNI."""
    fingerprint: str | None = None
    """SHA-256 of the server's certificate (DER), 64 hex digits. None: certification authorities decide."""
    cafile: str | None = None
    cadata: bytes | None = field(default=None, repr=False)
    """Certification authorities, as a file's name or as PEM bytes; neither: those of the system."""
    verify: bool = True
    """False takes any certificate: for measurements that tell nobody anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings(TransportSettings):
    """A server for many connections."""

    certificate: bytes = field(repr=False)
    """PEM: the certificate and, after it, its chain."""
    private_key: bytes = field(repr=False)
    """PEM, unencrypted."""
    stateless_reset_key: bytes = field(repr=False)
    """Keeps its value across restarts, so that clients of the process before learn at once (RFC 9000 §10.3.2)."""
    retry_key: bytes = field(repr=False)
    """16 or 32 bytes; need not outlive the process."""
    keep_alive: float | None = None
    handshake_timeout: float = 10.0
    max_sessions: int = 1024
    max_handshakes: int = 256
    retry_threshold: int = 32
    """Handshakes in progress from which on clients must prove their address first (RFC 9000 §8.1.2)."""
    initials_per_second: float = 50.0
    """Handshakes begun for unproven addresses a second; those above must prove theirs first, too."""
    token_lifetime: float = 15.0

    def __post_init__(self) -> None:
        # super() without arguments fails in a dataclass with slots, which replaces the class.
        TransportSettings.__post_init__(self)
        if len(self.retry_key) not in (16, 32):
            raise ConfigError("must be 16 or 32 bytes", field="retry_key")
        if len(self.stateless_reset_key) < 16:
            raise ConfigError("must be at least 16 bytes", field="stateless_reset_key")
        if min(self.max_sessions, self.max_handshakes) < 1:
            raise ConfigError("must be at least 1", field="max_handshakes")
