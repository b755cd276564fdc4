"""Whole IP packets as a namespace sends and receives them, and the few facts tests ask of them."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import TracebackType

from tests.linux.namespaces import Namespace

_ETH_P_ALL = 3
_PACKET_OUTGOING = 4
_SO_RCVBUFFORCE = 33
ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
ECHO_REQUESTS = (8, 128)


@dataclass(frozen=True, slots=True)
class Seen:
    """One IP packet. is_outgoing: the namespace sent it through this interface; else it arrived there."""

    interface: str
    is_outgoing: bool
    data: bytes

    @property
    def version(self) -> int:
        return self.data[0] >> 4

    @property
    def size(self) -> int:
        """Bytes of the IP packet, as its header says."""
        return self._number(2) if self.version == 4 else 40 + self._number(4)

    @property
    def protocol(self) -> int:
        """The protocol behind the header; behind a hop-by-hop header, as MLD has one, that of its payload."""
        if self.version == 4:
            return self.data[9]
        return self.data[40] if self.data[6] == 0 else self.data[6]

    @property
    def ttl(self) -> int:
        return self.data[8] if self.version == 4 else self.data[7]

    @property
    def traffic_class(self) -> int:
        """DSCP and ECN."""
        return self.data[1] if self.version == 4 else self._number(0) >> 4 & 0xFF

    @property
    def dont_fragment(self) -> bool:
        """DF, which IPv6 always has."""
        return self.version == 6 or bool(self._number(6) & 0x4000)

    @property
    def is_fragment(self) -> bool:
        return bool(self._number(6) & 0x3FFF) if self.version == 4 else self.data[6] == 44

    @property
    def source(self) -> IPv4Address | IPv6Address:
        return ip_address(self.data[12:16] if self.version == 4 else self.data[8:24])

    @property
    def destination(self) -> IPv4Address | IPv6Address:
        return ip_address(self.data[16:20] if self.version == 4 else self.data[24:40])

    @property
    def payload(self) -> bytes:
        """What is behind the IP header."""
        if self.version == 4:
            return self.data[(self.data[0] & 15) * 4 : self.size]
        skipped = 8 + 8 * self.data[41] if self.data[6] == 0 else 0
        return self.data[40 + skipped : self.size]

    @property
    def ports(self) -> tuple[int, int]:
        """Source and destination port of UDP or TCP."""
        source, destination = struct.unpack_from("!HH", self.payload)
        return source, destination

    @property
    def icmp_type(self) -> int | None:
        return self.payload[0] if self.protocol in (ICMP, ICMPV6) and self.payload else None

    def _number(self, offset: int) -> int:
        return int.from_bytes(self.data[offset : offset + 2])


class Sniffer:
    """Keeps every IP packet of a namespace from the moment it is made; interface: of one interface only.

    A packet that is forwarded is seen twice, coming in and going out. A sending interface that leaves segmentation
    to the hardware shows super-packets: ethtool -K DEV tx-udp-segmentation off.
    """

    def __init__(self, host: Namespace, interface: str | None = None) -> None:
        with host.entered():
            # Of every interface, also one that comes later.
            self._socket = socket.socket(
                socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(_ETH_P_ALL)
            )
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 32 << 20)
        if interface is not None:
            self._socket.bind((interface, _ETH_P_ALL))
            self._take_all()

    def __enter__(self) -> Sniffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def packets(self, *, settle: float = 0.1) -> list[Seen]:
        """Return what was seen since the last call, once nothing has come for settle seconds."""
        found = self._take_all()
        while select.select([self._socket], [], [], settle)[0]:
            found += self._take_all()
        return found

    def _take_all(self) -> list[Seen]:
        taken = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, address = self._socket.recvfrom(65536)
                if len(data) >= 20 and data[0] >> 4 in (4, 6):
                    taken.append(Seen(str(address[0]), address[2] == _PACKET_OUTGOING, data))
        return taken
