"""One NFQUEUE of the kernel, spoken to over netlink: packets' ids, lengths and arrival times, and verdicts."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

AF_NETLINK_NETFILTER: Final = 12
SOL_NETLINK: Final = 270
NETLINK_NO_ENOBUFS: Final = 5
SO_RCVBUFFORCE: Final = 33
RECEIVE_BUFFER: Final = 64 * 1024 * 1024
QUEUE_LENGTH: Final = 20_000

NFNL_SUBSYSTEM_QUEUE: Final = 3 << 8
MESSAGE_PACKET: Final = NFNL_SUBSYSTEM_QUEUE | 0
MESSAGE_VERDICT: Final = NFNL_SUBSYSTEM_QUEUE | 1
MESSAGE_CONFIG: Final = NFNL_SUBSYSTEM_QUEUE | 2
MESSAGE_VERDICT_BATCH: Final = NFNL_SUBSYSTEM_QUEUE | 3
NLMSG_ERROR: Final = 2

ATTRIBUTE_TIMESTAMP: Final = 4
ATTRIBUTE_PAYLOAD: Final = 10
ATTRIBUTE_VERDICT_HEADER: Final = 2
CONFIG_COMMAND: Final = 1
CONFIG_PARAMETERS: Final = 2
CONFIG_MAXIMUM_LENGTH: Final = 3
COMMAND_BIND: Final = 1
COPY_PACKET: Final = 2

DROP: Final = 0
ACCEPT: Final = 1

COPIED: Final = 8
"""Bytes of each packet that are asked for: enough for version and length in both families."""

_HEADER = struct.Struct("=IHHIIBBH")
_VERDICT = struct.Struct("!II")
_ATTRIBUTE = struct.Struct("=HH")
_PACKET_ID = struct.Struct("!I")
_LENGTHS = struct.Struct("!BxHH")  # version nibble, IPv4 total length, IPv6 payload length
_STAMP = struct.Struct("!QQ")
_FIRST_ATTRIBUTE: Final = 20


class NetfilterQueue:
    """A queue number of the namespace that the calling thread is in at construction."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._buffer = bytearray(4096)
        self._layouts: dict[int, tuple[int, int]] = {}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, AF_NETLINK_NETFILTER)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        self._socket.bind((0, 0))
        self._configure(CONFIG_COMMAND, struct.pack("!BxH", COMMAND_BIND, socket.AF_INET))
        self._configure(CONFIG_PARAMETERS, struct.pack("!IB", COPIED, COPY_PACKET))
        self._configure(CONFIG_MAXIMUM_LENGTH, struct.pack("!I", QUEUE_LENGTH))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, to wait for packets."""
        return self._socket.fileno()

    def receive(self) -> list[tuple[int, int, float]]:
        """Return the packets that have come: id, IP length, and arrival (seconds since the epoch; 0 = unknown)."""
        found: list[tuple[int, int, float]] = []
        receive_into, buffer = self._socket.recv_into, self._buffer
        while True:
            try:
                size = receive_into(buffer)
            except BlockingIOError:
                return found
            # Errors come too: a verdict on a packet that the kernel has dropped meanwhile, as a rule was removed.
            if _ATTRIBUTE.unpack_from(buffer, 4)[0] == MESSAGE_PACKET:
                found.append(self._parse(size))

    def accept_up_to(self, packet: int) -> None:
        """Let a packet and all that came before it go on."""
        self._send(MESSAGE_VERDICT_BATCH, ATTRIBUTE_VERDICT_HEADER, _VERDICT.pack(ACCEPT, packet))

    def accept(self, packet: int) -> None:
        """Let one packet go on."""
        self._send(MESSAGE_VERDICT, ATTRIBUTE_VERDICT_HEADER, _VERDICT.pack(ACCEPT, packet))

    def drop(self, packet: int) -> None:
        """Drop one packet."""
        self._send(MESSAGE_VERDICT, ATTRIBUTE_VERDICT_HEADER, _VERDICT.pack(DROP, packet))

    def _parse(self, size: int) -> tuple[int, int, float]:
        buffer = self._buffer
        payload, stamp = self._layouts.get(size) or self._find(size)
        if _ATTRIBUTE.unpack_from(buffer, payload - 4) != (4 + COPIED, ATTRIBUTE_PAYLOAD):
            payload, stamp = self._find(size)  # another order of attributes with the same total length
        first, total, after_header = _LENGTHS.unpack_from(buffer, payload)
        at = 0.0
        if stamp:
            seconds, microseconds = _STAMP.unpack_from(buffer, stamp)
            at = seconds + microseconds * 1e-6
        length = total if first >> 4 == 4 else after_header + 40
        # The packet's header is always the first attribute.
        return _PACKET_ID.unpack_from(buffer, _FIRST_ATTRIBUTE + 4)[0], length, at

    def _find(self, size: int) -> tuple[int, int]:
        """Find where the payload and the time stamp (0: none) are, and remember it for messages of this size."""
        payload = stamp = 0
        offset = _FIRST_ATTRIBUTE
        while offset + 4 <= size:
            length, kind = _ATTRIBUTE.unpack_from(self._buffer, offset)
            if kind == ATTRIBUTE_PAYLOAD:
                payload = offset + 4
            elif kind == ATTRIBUTE_TIMESTAMP:
                stamp = offset + 4
            offset += max(4, (length + 3) & ~3)
        self._layouts[size] = payload, stamp
        return payload, stamp

    def _configure(self, attribute: int, value: bytes) -> None:
        self._send(MESSAGE_CONFIG, attribute, value, acknowledge=True)
        reply = self._socket.recv(4096)
        code = struct.unpack_from("=i", reply, 16)[0]
        if _ATTRIBUTE.unpack_from(reply, 4)[0] == NLMSG_ERROR and code != 0:
            raise OSError(-code, f"NFQUEUE {self._number}: {os.strerror(-code)}")

    def _send(self, kind: int, attribute: int, value: bytes, *, acknowledge: bool = False) -> None:
        padded = value + bytes(-len(value) % 4)
        flags = 5 if acknowledge else 1  # NLM_F_REQUEST, NLM_F_ACK
        header = _HEADER.pack(24 + len(padded), kind, flags, 0, 0, 0, 0, socket.htons(self._number))
        self._socket.send(header + _ATTRIBUTE.pack(4 + len(value), attribute) + padded)
