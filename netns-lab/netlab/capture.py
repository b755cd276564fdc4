"""A capture of our own: every IP packet that passes a device, with the kernel's time stamp.

A thread reads an AF_PACKET socket opened in the host's namespace, so nothing has to start up first and nothing is
lost at the end. `dropped` says how many packets the kernel could not hand over; a figure that depends on having
seen everything must check it. Only heads are kept (wire.SNAP_LENGTH), about 300 bytes of memory a packet.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Final, Self

from netlab import namespace, wire
from netlab.errors import LabError
from netlab.host import Host
from netlab.wire import Packet

ETH_P_ALL: Final = 0x0003
ETH_P_IP: Final = 0x0800
ETH_P_IPV6: Final = 0x86DD
SOL_PACKET: Final = 263
PACKET_STATISTICS: Final = 6
SO_RCVBUFFORCE: Final = 33
SO_TIMESTAMPNS: Final = 35
RECEIVE_BUFFER: Final = 64 * 1024 * 1024


class Capture:
    """What passes one device of a host, from entering the context to leaving it.

    Leaving raises LabError if reading has failed meanwhile, unless something else is being raised.
    """

    def __init__(self, host: Host, device: str) -> None:
        self.dropped = 0
        self._failure: OSError | None = None
        self._device = f"{device} of {host.name}"
        self._raw: list[tuple[float, bool, int, bytes]] = []
        with namespace.entered(host.namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind((device, ETH_P_ALL))
        self._socket.setblocking(False)
        self._wake, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._read, name=f"capture {device}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._wake_writer)
        self._thread.join()
        statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        self.dropped += struct.unpack("II", statistics)[1]
        self._socket.close()
        os.close(self._wake)
        if self._failure is not None and error is None:
            raise LabError(f"the capture on {self._device} has failed: {self._failure}") from self._failure

    def packets(self, since: float = 0.0, until: float = float("inf")) -> list[Packet]:
        """Return what has passed between two times (seconds since the epoch), in order of time."""
        parsed = (
            wire.parse(head, time=at, outgoing=outgoing, length=length)
            for at, outgoing, length, head in list(self._raw)
            if since <= at <= until
        )
        return [packet for packet in parsed if packet is not None]

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            try:
                self._drain()
            except OSError as error:
                self._failure = error
                return
            if self._wake in ready:  # the other end is closed
                return

    def _drain(self) -> None:
        buffer = bytearray(wire.SNAP_LENGTH)
        with contextlib.suppress(BlockingIOError):
            while True:
                # With MSG_TRUNC the length returned is the packet's own.
                try:
                    length, extra, _, address = self._socket.recvmsg_into([buffer], 64, socket.MSG_TRUNC)
                except OSError as error:
                    if error.errno != errno.ENETDOWN:
                        raise
                    continue  # said once when the device is switched off; it goes on when it is on again
                if address[1] not in (ETH_P_IP, ETH_P_IPV6):
                    continue
                at = _time_stamp(extra)
                outgoing = address[2] == socket.PACKET_OUTGOING
                self._raw.append((at, outgoing, length, bytes(buffer[:length])))


def _time_stamp(extra: list[tuple[int, int, bytes]]) -> float:
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("qq", data)
            return float(seconds + nanoseconds * 1e-9)
    return time.time()
