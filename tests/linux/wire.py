"""What is really on the wire: a capture of one interface, as IP packets with their DF bit and fragment fields."""

from __future__ import annotations

import select
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from tests.linux.namespaces import Namespace

_ETH_P_ALL = 3
_PACKET_OUTGOING = 4
_UDP = 17
_FRAGMENT_HEADER = 44


@dataclass(frozen=True)
class WirePacket:
    """One UDP packet, or a fragment of it. size: of the IP packet. dont_fragment: None for IPv6 (implied)."""

    version: int
    size: int
    dont_fragment: bool | None
    is_fragment: bool


class Capture:
    """Records the UDP packets that arrive at an interface of a namespace, from the start of the with block.

    The sending interface must not leave segmentation to the receiver (ethtool -K DEV tx-udp-segmentation off).
    """

    def __init__(self, host: Namespace, interface: str) -> None:
        with host.entered():
            # A datagram socket: the kernel takes the Ethernet header off.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._socket.bind((interface, _ETH_P_ALL))

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def packets(self, *, settle: float = 0.1) -> list[WirePacket]:
        """Return what arrived since the last call, once nothing has come for settle seconds."""
        found: list[WirePacket] = []
        while select.select([self._socket], [], [], settle)[0]:
            data, address = self._socket.recvfrom(65536)
            if address[2] != _PACKET_OUTGOING:
                packet = parse(data)
                if packet is not None:
                    found.append(packet)
        return found


def parse(data: bytes) -> WirePacket | None:
    """Return a UDP packet's facts, or None for anything else."""
    version = data[0] >> 4 if data else 0
    if version == 4 and data[9] == _UDP:
        size, flags = struct.unpack_from("!H2xH", data, 2)
        return WirePacket(4, size, bool(flags & 0x4000), bool(flags & 0x3FFF))
    if version == 6 and data[6] in (_UDP, _FRAGMENT_HEADER):
        return WirePacket(6, 40 + struct.unpack_from("!H", data, 4)[0], None, data[6] == _FRAGMENT_HEADER)
    return None
