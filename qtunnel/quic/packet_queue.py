"""Inner packets waiting for the congestion window: bounded in number, bytes and time, and kept short by CoDel.

One queue a connection. Packets are kept as they came, runs as runs; the DATAGRAM frame around them is made when
they are sealed. When packets wait longer than TARGET for a whole INTERVAL, one is dropped from the front, then
more and more often (RFC 8289), so that senders inside the tunnel slow down before the queue is felt.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from qtunnel.burst import MAX_READ
from qtunnel.drops import DropCounts, DropReason
from qtunnel.packet_run import PacketRun, Packets, total_size

__all__ = ["PacketQueue"]

TARGET: Final = 0.015
"""Seconds of standing queue that are accepted; bursts of the pacer alone make a few milliseconds."""
INTERVAL: Final = 0.1
NO_DROPS: Final = DropCounts()


@dataclass(slots=True)
class _Entry:
    """Packets queued together: when, what goes before each in its frame, and from which one on they are left."""

    queued_at: float
    prefix: bytes
    packets: Packets
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.packets) - self.at

    @property
    def first_size(self) -> int:
        packets = self.packets
        return packets.size if isinstance(packets, PacketRun) else len(packets[self.at])

    def take(self, count: int) -> Packets:
        """Take packets from the front; there are as many."""
        begin, self.at = self.at, self.at + count
        return self.packets[begin : self.at]

    def equal(self, size: int, most: int) -> int:
        """Return how many packets from the front have this size, at most `most`."""
        packets, at = self.packets, self.at
        most = min(most, len(packets) - at)
        if isinstance(packets, PacketRun):
            return most if packets.size == size else 0
        for count in range(most):
            if len(packets[at + count]) != size:
                return count
        return most


class PacketQueue:
    """First in, first out. drops is counted into; packets, and bytes of them: what waits."""

    def __init__(self, drops: DropCounts, *, max_packets: int, max_bytes: int, max_delay: float) -> None:
        self.drops = drops
        self.packets = 0
        self.bytes = 0
        self._entries: deque[_Entry] = deque()
        self._max_packets = max_packets
        self._max_bytes = max_bytes
        self._max_delay = max_delay
        self._above_since: float | None = None
        self._next_drop: float | None = None
        self._drop_count = 0

    @property
    def room(self) -> int:
        """Packets it takes now."""
        if self.bytes >= self._max_bytes:
            return 0
        return max(0, self._max_packets - self.packets)

    @property
    def has_room_for_read(self) -> bool:
        """Whether the TUN may be read: all that one read gives is taken, or nothing waits (in a small queue)."""
        return self.room >= MAX_READ or not self.packets

    @property
    def first_size(self) -> int:
        """Bytes of the first packet; there is one."""
        return self._entries[0].first_size

    @property
    def prefix(self) -> bytes:
        """What goes before the first packet in its frame; there is one."""
        return self._entries[0].prefix

    def push(self, prefix: bytes, packets: Packets, *, largest: int, now: float) -> DropCounts:
        """Append packets of at most `largest` bytes; return what was dropped at once, which is counted, too.

        prefix: what goes before each in its DATAGRAM frame. What is returned is not to be changed.
        """
        drops = NO_DROPS
        fitting = _fitting(packets, largest)
        count = len(fitting)
        if count < len(packets):
            drops = DropCounts({DropReason.DATAGRAM_TOO_LARGE: len(packets) - count})
        room = self.room
        if count > room:
            drops = drops + DropCounts({DropReason.QUEUE_FULL: count - room})
            fitting = fitting[:room]
            count = room
        if count:
            self.packets += count
            self.bytes += total_size(fitting)
            self._entries.append(_Entry(now, prefix, fitting))
        if drops:
            self.drops.update(drops)
        return drops

    def take_equal(self, most: int) -> list[Packets]:
        """Take packets from the front as long as they have one size and one prefix, at most `most` of them."""
        first = self._entries[0]
        size, prefix = first.first_size, first.prefix
        taken: list[Packets] = []
        while most and self._entries:
            entry = self._entries[0]
            count = entry.equal(size, most) if entry.prefix == prefix else 0
            if not count:
                break
            taken.append(entry.take(count))
            most -= count
            self.packets -= count
            self.bytes -= count * size
            if not entry.left:
                self._entries.popleft()
        return taken

    def take(self) -> bytes:
        """Take the first packet; there is one."""
        entry = self._entries[0]
        packet = entry.packets[entry.at]
        entry.at += 1
        if not entry.left:
            self._entries.popleft()
        self.packets -= 1
        self.bytes -= len(packet)
        return packet

    def control_delay(self, now: float) -> None:
        """Drop what is too old, and from the front what CoDel says; call before taking packets."""
        entries = self._entries
        if not entries:
            self._above_since = None
            return
        while entries and now - entries[0].queued_at > self._max_delay:
            self._drop(entries[0].left, DropReason.QUEUE_TOO_OLD)
        if not entries or now - entries[0].queued_at < TARGET or self.packets <= 1:
            self._above_since = None
            self._next_drop = None
            return
        if self._above_since is None:
            self._above_since = now
        if self._next_drop is None:
            if now - self._above_since < INTERVAL:
                return
            # Came back soon after the last time: go on near the rate that was needed then (RFC 8289 §5.3).
            self._drop_count = max(1, self._drop_count - 2)
            self._next_drop = now
        while self._next_drop <= now and self.packets > 1:
            self._drop(1, DropReason.QUEUE_DELAY)
            self._drop_count += 1
            self._next_drop += INTERVAL / math.sqrt(self._drop_count)

    def drop_larger_than(self, largest: int) -> None:
        """Drop what no longer fits `largest` bytes with its prefix: the path's size fell while it waited."""
        kept: deque[_Entry] = deque()
        packets = 0
        self.bytes = 0
        for entry in self._entries:
            fitting = _fitting(entry.packets[entry.at :], largest - len(entry.prefix))
            if fitting:
                kept.append(_Entry(entry.queued_at, entry.prefix, fitting))
                packets += len(fitting)
                self.bytes += total_size(fitting)
        if packets < self.packets:
            self.drops[DropReason.DATAGRAM_TOO_LARGE] += self.packets - packets
        self._entries, self.packets = kept, packets

    def take_larger_than(self, largest: int) -> list[tuple[bytes, Packets]]:
        """Take out what does not fit `largest` bytes with its prefix, as (prefix, packets); the rest stays."""
        kept: deque[_Entry] = deque()
        taken: list[tuple[bytes, Packets]] = []
        for entry in self._entries:
            packets = entry.packets[entry.at :]
            room = largest - len(entry.prefix)
            fitting = _fitting(packets, room)
            if fitting:
                kept.append(_Entry(entry.queued_at, entry.prefix, fitting))
            if len(fitting) < len(packets):
                out: Packets = packets if not fitting else [each for each in packets if len(each) > room]
                taken.append((entry.prefix, out))
                self.packets -= len(out)
                self.bytes -= total_size(out)
        self._entries = kept
        return taken

    def clear(self, reason: DropReason) -> None:
        """Drop everything for that reason."""
        if self.packets:
            self._drop(self.packets, reason)

    def _drop(self, count: int, reason: DropReason) -> None:
        self.drops[reason] += count
        self.packets -= count
        while count:
            entry = self._entries[0]
            gone = entry.take(min(count, entry.left))
            self.bytes -= total_size(gone)
            count -= len(gone)
            if not entry.left:
                self._entries.popleft()


def _fitting(packets: Packets, largest: int) -> Packets:
    """Return the packets of at most `largest` bytes."""
    if isinstance(packets, PacketRun):
        return packets if packets.size <= largest else []
    if not packets or max(map(len, packets)) <= largest:
        return packets
    return [packet for packet in packets if len(packet) <= largest]
