"""A pinger of our own: echoes at a steady rate from a thread, whatever the queue in front of it does.

iputils' ping stops sending once a device's queue is full, and then shows gaps that are its own. This one has a
large send buffer and keeps its schedule; an echo that could not be sent is counted as such.
"""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from netlab import namespace
from netlab.addresses import IPAddress
from netlab.host import Host

SO_SNDBUFFORCE: Final = 32
BUFFER: Final = 4 * 1024 * 1024
ECHO_REQUEST: Final = {4: 8, 6: 128}
ECHO_REPLY: Final = {4: 0, 6: 129}
PAYLOAD: Final = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """What came back. rtts: (when sent, seconds since the epoch; round trip in ms), in order of sending."""

    sent: int
    not_sent: int
    rtts: list[tuple[float, float]]

    @property
    def lost(self) -> int:
        """Echoes sent and not answered."""
        return self.sent - len(self.rtts)

    def percentile(self, share: float) -> float:
        """Return the round trip in ms that this share of the replies did not exceed; infinite without replies."""
        if len(self.rtts) < 2:
            return self.rtts[0][1] if self.rtts else float("inf")
        return statistics.quantiles([rtt for _, rtt in self.rtts], n=1000, method="inclusive")[
            int(share * 1000) - 1
        ]


class Pinger:
    """Echoes from entering the context to leaving it."""

    def __init__(self, host: Host, address: IPAddress, *, interval: float = 0.02) -> None:
        self._address, self._interval, self._version = str(address), interval, address.version
        family, protocol = (
            (socket.AF_INET, socket.IPPROTO_ICMP)
            if address.version == 4
            else (socket.AF_INET6, socket.IPPROTO_ICMPV6)
        )
        with namespace.entered(host.namespace):
            # A datagram ICMP socket: the kernel fills in the checksum, and gives us our own replies only.
            self._socket = socket.socket(family, socket.SOCK_DGRAM, protocol)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
        self._socket.setblocking(False)
        self._sent: list[float] = []
        self._rtts: dict[int, float] = {}
        self._not_sent = 0
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="pinger", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join()
        self._socket.close()

    def replies(self) -> Replies:
        """Return what has come back; to be called after the end."""
        rtts = [(self._sent[number], rtt) for number, rtt in sorted(self._rtts.items())]
        return Replies(sent=len(self._sent), not_sent=self._not_sent, rtts=rtts)

    def _run(self) -> None:
        next_at = time.monotonic()
        while not self._ended:
            now = time.monotonic()
            if now >= next_at:
                self._send()
                # After a stall of ours the schedule goes on from now, not in a burst.
                next_at = max(next_at + self._interval, now)
            self._receive(max(0.0, next_at - time.monotonic()))
        deadline = time.monotonic() + 1.0
        while (left := deadline - time.monotonic()) > 0 and len(self._rtts) < len(self._sent):
            self._receive(left)

    def _send(self) -> None:
        number = len(self._sent)
        header = struct.pack("!BBHHH", ECHO_REQUEST[self._version], 0, 0, 0, number & 0xFFFF)
        try:
            self._socket.sendto(header + struct.pack("!Q", number) + bytes(PAYLOAD - 8), (self._address, 0))
        except OSError:  # no route, no room
            self._not_sent += 1
            return
        self._sent.append(time.time())

    def _receive(self, timeout: float) -> None:
        if not select.select([self._socket], [], [], timeout)[0]:
            return
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    data = self._socket.recv(2048)
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    continue  # an ICMP error about one of ours
                now = time.time()
                if len(data) >= 16 and data[0] == ECHO_REPLY[self._version]:
                    number = struct.unpack_from("!Q", data, 8)[0]
                    if number < len(self._sent):
                        self._rtts.setdefault(number, (now - self._sent[number]) * 1e3)
