"""Inner packets waiting for the congestion window: bounded in number, bytes and time, and kept short by CoDel.

One queue a connection. Packets are kept as they came; the DATAGRAM frame around them is made when they are sealed.
When packets wait longer than TARGET for a whole INTERVAL, one is dropped from the front, then more and more often
(RFC 8289), so that senders inside the tunnel slow down before the queue is felt.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qtunnel.burst import MAX_READ
from qtunnel.drops import DropCounts, DropReason

__all__ = ["PacketQueue"]

TARGET: Final = 0.015
"""Seconds of standing queue that are accepted; bursts of the pacer alone make a few milliseconds."""
INTERVAL: Final = 0.1


@dataclass(slots=True)
class _Run:
    """Packets queued together: when, how many are left, and what goes before each in its frame."""

    queued_at: float
    count: int
    prefix: bytes


class PacketQueue:
    """First in, first out. drops is counted into; bytes is the sum of the packets' lengths."""

    def __init__(self, drops: DropCounts, *, max_packets: int, max_bytes: int, max_delay: float) -> None:
        self.drops = drops
        self.packets: deque[bytes] = deque()
        self.bytes = 0
        self._runs: deque[_Run] = deque()
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
        return max(0, self._max_packets - len(self.packets))

    @property
    def has_room_for_read(self) -> bool:
        """Whether the TUN may be read: all that one read gives is taken, or nothing waits (in a small queue)."""
        return self.room >= MAX_READ or not self.packets

    def head(self) -> tuple[bytes, int]:
        """Return what goes before the first packet in its frame, and for how many packets from there on."""
        runs = self._runs
        prefix = runs[0].prefix
        count = 0
        for run in runs:
            if run.prefix != prefix:
                break
            count += run.count
        return prefix, count

    def push(self, prefix: bytes, packets: Sequence[bytes], *, largest: int, now: float) -> DropCounts:
        """Append packets of at most `largest` bytes; return what was dropped at once, which is counted, too.

        prefix: what goes before each in its DATAGRAM frame.
        """
        drops = DropCounts()
        fitting: Sequence[bytes] = packets
        if packets and max(map(len, packets)) > largest:
            fitting = [packet for packet in packets if len(packet) <= largest]
            drops[DropReason.DATAGRAM_TOO_LARGE] = len(packets) - len(fitting)
        room = self.room
        if len(fitting) > room:
            drops[DropReason.QUEUE_FULL] = len(fitting) - room
            fitting = fitting[:room]
        if fitting:
            self.packets.extend(fitting)
            self.bytes += sum(map(len, fitting))
            self._runs.append(_Run(now, len(fitting), prefix))
        if drops:
            self.drops.update(drops)
        return drops

    def taken(self, count: int, size: int) -> None:
        """Note that count packets of size bytes in all were taken from the left of `packets`."""
        self.bytes -= size
        runs = self._runs
        while count:
            run = runs[0]
            if run.count > count:
                run.count -= count
                return
            count -= run.count
            runs.popleft()

    def control_delay(self, now: float) -> None:
        """Drop what is too old, and from the front what CoDel says; call before taking packets."""
        runs = self._runs
        if not runs:
            self._above_since = None
            return
        while runs and now - runs[0].queued_at > self._max_delay:
            self._drop(runs[0].count, DropReason.QUEUE_TOO_OLD)
        if not runs or now - runs[0].queued_at < TARGET or len(self.packets) <= 1:
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
        while self._next_drop <= now and len(self.packets) > 1:
            self._drop(1, DropReason.QUEUE_DELAY)
            self._drop_count += 1
            self._next_drop += INTERVAL / math.sqrt(self._drop_count)

    def drop_larger_than(self, largest: int) -> None:
        """Drop what no longer fits `largest` bytes with its prefix: the path's size fell while it waited."""
        longest = max((len(run.prefix) for run in self._runs), default=0)
        if not self.packets or max(map(len, self.packets)) + longest <= largest:
            return
        kept: deque[bytes] = deque()
        runs: deque[_Run] = deque()
        dropped = 0
        for run in self._runs:
            before = len(kept)
            for _ in range(run.count):
                packet = self.packets.popleft()
                if len(packet) + len(run.prefix) <= largest:
                    kept.append(packet)
                else:
                    dropped += 1
            if len(kept) > before:
                runs.append(_Run(run.queued_at, len(kept) - before, run.prefix))
        self.packets, self._runs = kept, runs
        self.bytes = sum(map(len, kept))
        self.drops[DropReason.DATAGRAM_TOO_LARGE] += dropped

    def clear(self, reason: DropReason) -> None:
        """Drop everything for that reason."""
        if self.packets:
            self._drop(len(self.packets), reason)

    def _drop(self, count: int, reason: DropReason) -> None:
        size = sum(len(self.packets.popleft()) for _ in range(count))
        self.taken(count, size)
        self.drops[reason] += count
