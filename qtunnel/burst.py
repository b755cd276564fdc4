"""What crosses the edges: bursts of inner packets, bursts of UDP datagrams, and what became of a send.

One wake-up reads until empty (at most MAX_BURST packets), takes the time once and calls the core once
(docs/design/0001-burst-and-layers.md). A list of buffers, or a run in one buffer (packet_run.py), is handed on,
never an object per packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from qtunnel.packet_run import Packets

__all__ = [
    "MAX_BURST",
    "MAX_READ",
    "MAX_RUN",
    "Address",
    "Burst",
    "Received",
    "SendResult",
    "Transmit",
    "TunEdge",
    "UdpEdge",
    "address_text",
]

MAX_BURST: Final = 128
"""Packets or datagrams read in one wake-up at most, so that neither direction starves the other."""
MAX_RUN: Final = 64
"""Packets the kernel hands over as one at most."""
MAX_READ: Final = MAX_BURST + MAX_RUN - 1
"""Packets one read of a TUN gives at most: a whole super-packet may follow MAX_BURST - 1 packets."""

Address = tuple[str, int] | tuple[str, int, int, int]
"""A UDP address as the socket module gives it: (host, port), for IPv6 (host, port, flowinfo, scope_id)."""


@dataclass(slots=True)
class Burst:
    """Inner IP packets read together, in order, and the one time they were read at.

    packets: whole IP packets, IPv4 and IPv6 mixed. now: seconds, the loop's monotonic clock.
    """

    packets: Packets
    now: float


@dataclass(slots=True)
class Received:
    """UDP datagrams received together from one remote address.

    datagrams: UDP payloads in order of arrival; what the kernel had coalesced is a run. local: the address the
    peer spoke to, without a port, or None where the socket is bound to one address. ecn: the two ECN bits (RFC
    3168). path_id: the path whose socket they came in by.
    """

    datagrams: Packets
    remote: Address
    local: str | None = None
    ecn: int = 0
    path_id: int = 0


@dataclass(slots=True)
class Transmit:
    """One sendmsg: one datagram, or several of segment_size bytes back to back (the last may be shorter).

    local: the address to send from, or None for the kernel's choice. A path MTU probe and a PATH_CHALLENGE are a
    Transmit of their own.
    """

    data: bytes
    remote: Address
    local: str | None = None
    segment_size: int | None = None
    path_id: int = 0


class SendResult(Enum):
    """What the kernel said to one Transmit."""

    SENT = "sent"
    WOULD_BLOCK = "would-block"  # nothing was sent; try again when the socket is writable
    TOO_BIG = "too-big"  # EMSGSIZE: a hint that the datagram exceeds the local link, never proof
    UNREACHABLE = "unreachable"  # no route, network down, or an earlier ICMP error
    FAILED = "failed"  # anything else; counted and logged once


class TunEdge(Protocol):
    """A TUN device, or what stands for one. Packets are whole IP packets."""

    def read_burst(self) -> list[Packets]:
        """Return about MAX_BURST packets, at most MAX_READ, in groups; empty when nothing waits.

        A group is a list of single packets or a run.
        """
        ...

    def write_burst(self, packets: Packets) -> int:
        """Write the packets in order; return how many the kernel took. The rest was refused for good."""
        ...


class UdpEdge(Protocol):
    """A UDP socket, or what stands for one."""

    def receive(self, max_datagrams: int = MAX_BURST) -> list[Received]:
        """Return what waits, at most about max_datagrams datagrams; empty when nothing does."""
        ...

    def send(self, transmit: Transmit) -> SendResult:
        """Send one Transmit. Never raises for what the network or the kernel says."""
        ...


def address_text(address: Address) -> str:
    """Return host:port as people write it, an IPv6 host in brackets."""
    host = address[0]
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
