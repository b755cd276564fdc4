"""Joins one core to its TUN and its UDP sockets: readable descriptor -> core -> writable descriptor.

A wake-up reads one source until empty (at most a burst), takes the time once, calls the core once, and flushes:
packets to the TUN, datagrams to UDP, the one timer, the events. There is no queue, task or await between TUN and
UDP. When the core has no room for a whole read, or a UDP socket is full, the TUN is not read: its queue is where
local senders notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Final, Protocol

from qtunnel.aio.health import Health
from qtunnel.burst import MAX_BURST, Address, Burst, Received, SendResult, Transmit, TunEdge, UdpEdge
from qtunnel.drops import DropCounts, DropReason
from qtunnel.linux.timerfd import TimerFd
from qtunnel.packet_run import Packets

__all__ = ["Core", "Driver", "FileTunEdge", "FileUdpEdge", "PacketPort"]

logger = logging.getLogger(__name__)

MAX_BLOCKED: Final = 512
"""Transmits kept while a UDP socket's buffer is full; beyond, datagrams are dropped and counted."""
LATE: Final = 0.05
"""Seconds a timer may be late before every socket is drained ahead of it (design D6: our own stall)."""


class Core(Protocol):
    """The sans-IO machine a driver serves: ClientTunnel or ServerTunnel."""

    def receive_from_tun(self, burst: Burst) -> None: ...  # noqa: D102 - see qtunnel.tunnel
    def receive_from_udp(self, received: list[Received], now: float) -> None: ...  # noqa: D102
    def handle_timer(self, now: float) -> None: ...  # noqa: D102
    def get_timer(self) -> float | None: ...  # noqa: D102
    def datagrams_to_send(self, now: float) -> list[Transmit]: ...  # noqa: D102
    def packets_to_write(self) -> list[Packets]: ...  # noqa: D102
    def next_event(self) -> Any: ...  # noqa: D102
    def has_room_for_read(self) -> bool: ...  # noqa: D102
    def on_stall(self, duration: float, now: float) -> None: ...  # noqa: D102
    def on_refused(self, transmit: Transmit, now: float) -> None: ...  # noqa: D102
    def on_packet_too_big(self, remote: Address, mtu: int, quoted: bytes, now: float) -> None: ...  # noqa: D102


class FileTunEdge(TunEdge, Protocol):
    """A TunEdge with a descriptor to wait on. detached: the device was deleted behind our back.

    has_more: the next read_burst gives packets, whether or not the descriptor is readable.
    """

    detached: bool
    has_more: bool

    def fileno(self) -> int: ...  # noqa: D102


class FileUdpEdge(UdpEdge, Protocol):
    """A UdpEdge with a descriptor to wait on."""

    path_id: int
    error_wakeups: int

    @property
    def local_address(self) -> Address: ...  # noqa: D102

    def fileno(self) -> int: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def read_errors(self) -> list[Any]: ...  # noqa: D102


class PacketPort:
    """Stands where a TUN would: inner packets for an application, as bytes. Bounded; the oldest are dropped.

    One reader at a time.
    """

    def __init__(self, max_packets: int = 4096) -> None:
        self._packets: deque[bytes] = deque()
        self._max_packets = max_packets
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self.dropped = 0

    def write_burst(self, packets: Packets) -> int:
        """Hand packets to the reader; returns how many were kept, as every one is."""
        self._packets.extend(packets)
        while len(self._packets) > self._max_packets:
            self._packets.popleft()
            self.dropped += 1
        self._wake()
        return len(packets)

    async def receive(self) -> list[bytes]:
        """Wait for packets and return all there are; an empty list once the tunnel is closed."""
        while not self._packets and not self._closed:
            if self._waiter is not None:
                raise RuntimeError("another task is already receiving packets")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        packets = list(self._packets)
        self._packets.clear()
        return packets

    def close(self) -> None:
        """Let the reader finish."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Driver:
    """One core, its sockets, and a TUN or a PacketPort. Not a task: callbacks of the running loop.

    on_events is called after a flush that left events. The driver owns neither core nor edges: close() only stops
    listening; the sockets are closed by whoever opened them.
    """

    def __init__(
        self,
        core: Core,
        *,
        sockets: Iterable[FileUdpEdge],
        on_events: Callable[[], None],
        tun: FileTunEdge | None = None,
        port: PacketPort | None = None,
        health: Health | None = None,
    ) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._sockets = {(each.path_id, ":" in each.local_address[0]): each for each in sockets}
        self._on_events = on_events
        self._tun = tun
        self._port = port
        self._tun_read = False
        self._blocked: dict[FileUdpEdge, deque[Transmit]] = {}
        self._error_wakeups: dict[FileUdpEdge, int] = {}
        self._timer = TimerFd()
        self._due: float | None = None
        self._timer_at: float | None = None
        self._closed = False
        self.drops = DropCounts()
        self.late_wake_ups = 0
        self.longest_stall = 0.0
        self.health = Health() if health is None else health

    def start(self) -> None:
        """Begin to listen and send what the core has to send."""
        for each in self._sockets.values():
            self._loop.add_reader(each.fileno(), self._udp_readable, each)
            self._error_wakeups[each] = each.error_wakeups
        self._loop.add_reader(self._timer.fileno(), self._timer_due)
        self.flush()

    def attach(self, *, tun: FileTunEdge | None = None, port: PacketPort | None = None) -> None:
        """Carry packets from and to this TUN, or this port, from now on."""
        self._read_tun(False)
        self._tun, self._port = tun, port
        self.flush()

    def close(self) -> None:
        """Stop listening. Nothing is called back after this."""
        if self._closed:
            return
        self._closed = True
        for each in self._sockets.values():
            self._loop.remove_reader(each.fileno())
            self._loop.remove_writer(each.fileno())
        self._read_tun(False)
        self._loop.remove_reader(self._timer.fileno())
        self._timer.close()

    def send_packets(self, packets: list[bytes]) -> None:
        """Send inner packets of the application."""
        if not self._closed and packets:
            self._core.receive_from_tun(Burst(packets, monotonic()))
            self.flush()

    def status(self) -> dict[str, Any]:
        """Return what `qtunnel status` shows of the event loop, and what limits it."""
        return {
            **self.health.as_dict(monotonic()),
            "stalls": self.late_wake_ups,
            "longest_stall_ms": round(self.longest_stall * 1000, 1),
        }

    def flush(self) -> None:
        """Take out of the core what it has: packets, datagrams, timer, events. Call after calling the core."""
        if self._closed:
            return
        core = self._core
        now = monotonic()
        for packets in core.packets_to_write():
            self._write_packets(packets)
        for transmit in core.datagrams_to_send(now):
            self._send(transmit)
        self._arm(core.get_timer())
        self._read_tun(not self._blocked and core.has_room_for_read())
        if now >= self.health.due:
            self.health.sample(now, is_blocked=bool(self._blocked))
        self._on_events()

    # wake-ups

    def _udp_readable(self, udp: FileUdpEdge) -> None:
        received = udp.receive(MAX_BURST)
        if received:
            for each in received:
                each.path_id = udp.path_id
            self._core.receive_from_udp(received, monotonic())
        if not received or self._error_wakeups[udp] != udp.error_wakeups:
            # A pending ICMP error makes the descriptor readable with nothing to read: take it off the queue.
            self._read_errors(udp)
        self._revive(udp)
        self.flush()

    def _read_errors(self, udp: FileUdpEdge) -> None:
        for error in udp.read_errors():
            logger.debug("ICMP about a datagram of ours: %s", error)
            if error.mtu is not None and not error.is_local:
                self._core.on_packet_too_big(error.remote, error.mtu, error.quoted, monotonic())

    def _revive(self, udp: FileUdpEdge) -> None:
        """Add a reader again after an error: libuv, and so uvloop, gives up on a descriptor after POLLERR."""
        if self._error_wakeups[udp] != udp.error_wakeups and not self._closed:
            self._error_wakeups[udp] = udp.error_wakeups
            self._loop.remove_reader(udp.fileno())
            self._loop.add_reader(udp.fileno(), self._udp_readable, udp)

    def _tun_readable(self) -> None:
        if self._tun is None:
            return
        groups = self._tun.read_burst()
        if groups:
            now = monotonic()
            for packets in groups:
                self._core.receive_from_tun(Burst(packets, now))
            self.flush()
        elif self._tun.detached:
            self._read_tun(False)  # the descriptor stays readable for ever

    def _take_more(self, tun: FileTunEdge) -> None:
        """Take what the last read of the TUN left, unless the room for it has gone meanwhile."""
        if self._tun_read and tun is self._tun and tun.has_more:
            self._tun_readable()

    def _timer_due(self) -> None:
        if self._closed:
            return
        self._timer.clear()
        due, self._timer_at = self._due, None
        now = monotonic()
        if due is None or now < due:
            self._arm(due)  # it has been put off since it was set
            return
        self.health.lateness.add(now - due, now)
        if now - due > LATE:
            # We were stopped or starved: what has arrived meanwhile is heard before anything is judged by time.
            self.late_wake_ups += 1
            self.longest_stall = max(self.longest_stall, now - due)
            self._core.on_stall(now - due, now)
            for udp in list(self._sockets.values()):
                while (received := udp.receive(MAX_BURST)) and not self._closed:
                    self._core.receive_from_udp(received, now)
        self._core.handle_timer(now)
        self.flush()

    def _udp_writable(self, udp: FileUdpEdge) -> None:
        waiting = self._blocked.pop(udp, None)
        self._loop.remove_writer(udp.fileno())
        while waiting:
            self._send(waiting.popleft())
            if udp in self._blocked:
                self._blocked[udp].extend(waiting)
                break
        self.flush()

    # sending

    def _send(self, transmit: Transmit) -> None:
        udp = self._socket_for(transmit)
        if udp is None:
            self.drops[DropReason.UDP_SEND] += 1
            return
        waiting = self._blocked.get(udp)
        if waiting is not None:
            if len(waiting) < MAX_BLOCKED:
                waiting.append(transmit)
            else:
                self.drops[DropReason.UDP_BLOCKED] += 1
            return
        match udp.send(transmit):
            case SendResult.SENT:
                pass
            case SendResult.WOULD_BLOCK:
                self._blocked[udp] = deque([transmit])
                self._loop.add_writer(udp.fileno(), self._udp_writable, udp)
            case SendResult.TOO_BIG:
                self.drops[DropReason.UDP_TOO_BIG] += 1
                self._core.on_refused(transmit, monotonic())
            case SendResult.UNREACHABLE | SendResult.FAILED:
                self.drops[DropReason.UDP_SEND] += 1

    def _socket_for(self, transmit: Transmit) -> FileUdpEdge | None:
        return self._sockets.get((transmit.path_id, ":" in transmit.remote[0]))

    def _write_packets(self, packets: Packets) -> None:
        edge = self._tun if self._tun is not None else self._port
        if edge is None:
            return
        written = edge.write_burst(packets)
        if written < len(packets):
            self.drops[DropReason.TUN_WRITE] += len(packets) - written

    def _arm(self, due: float | None) -> None:
        """Note when the core's timer is due. With most packets it moves, to later; the kernel's then stays."""
        self._due = due
        if due is None or (self._timer_at is not None and self._timer_at <= due):
            return
        self._timer_at = due
        self._timer.set(due)

    def _read_tun(self, wanted: bool) -> None:
        if self._tun is None:
            return
        wanted = wanted and not self._tun.detached
        if wanted and self._tun.has_more:
            self._loop.call_soon(self._take_more, self._tun)
        if wanted == self._tun_read:
            return
        self._tun_read = wanted
        if wanted:
            self._loop.add_reader(self._tun.fileno(), self._tun_readable)
        else:
            self._loop.remove_reader(self._tun.fileno())
