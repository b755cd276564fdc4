"""DATAGRAM frames waiting for the congestion window: bounded in number and in age, never blocked by size.

aioquic keeps such frames in an unbounded deque and tries its head until it fits, so one frame that never fits
stops all others for good. This queue *is* that deque, with a bound, a size checked on the way in, again
whenever the size falls, and a time stamp per burst (not per frame).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from qtunnel.burst import MAX_READ
from qtunnel.drops import DropCounts, DropReason

__all__ = ["DatagramQueue"]


class DatagramQueue:
    """First in, first out; what cannot be kept is counted in drops.

    frames: the payloads of the frames, each with its stream prefix, oldest first. Whoever sends takes them from
    the left and calls settle() afterwards.
    """

    def __init__(self, *, max_packets: int, max_delay: float) -> None:
        self.frames: deque[bytes] = deque()
        self.drops = DropCounts()
        self._max_packets = max_packets
        self._max_delay = max_delay
        self._runs: deque[tuple[float, int]] = deque()
        """(time queued, number of frames), oldest first."""
        self._settled = 0
        """The sum of the numbers in _runs: len(frames), but for what was taken since settle()."""

    @property
    def room(self) -> int:
        """Frames it takes now."""
        return max(0, self._max_packets - len(self.frames))

    @property
    def has_room_for_read(self) -> bool:
        """Whether the TUN may be read: all that one read gives is taken, or nothing waits (in a small queue)."""
        return self.room >= MAX_READ or not self.frames

    def push(self, prefix: bytes, packets: Iterable[bytes], *, max_payload: int, now: float) -> DropCounts:
        """Append prefix + packet for each packet; return the drops, which are counted here, too.

        max_payload: bytes of the largest frame payload that can be sent now.
        """
        limit = max_payload - len(prefix)
        room = self.room
        fitting = []
        too_large = 0
        for packet in packets:
            if len(packet) <= limit:
                fitting.append(prefix + packet)
            else:
                too_large += 1
        drops = DropCounts()
        if too_large:
            drops[DropReason.DATAGRAM_TOO_LARGE] = too_large
        if len(fitting) > room:
            drops[DropReason.QUEUE_FULL] = len(fitting) - room
            del fitting[room:]
        if fitting:
            self.frames.extend(fitting)
            self._runs.append((now, len(fitting)))
            self._settled += len(fitting)
        self.drops.update(drops)
        return drops

    def settle(self) -> None:
        """Take note of frames that were taken from the left since the last call."""
        taken = self._settled - len(self.frames)
        self._settled -= taken
        runs = self._runs
        while taken > 0:
            queued_at, count = runs.popleft()
            if count > taken:
                runs.appendleft((queued_at, count - taken))
            taken -= count

    def drop_old(self, now: float) -> None:
        """Drop what waited longer than it is worth."""
        runs = self._runs
        while runs and now - runs[0][0] > self._max_delay:
            _, count = runs.popleft()
            for _ in range(count):
                self.frames.popleft()
            self._settled -= count
            self.drops[DropReason.QUEUE_TOO_OLD] += count

    def drop_larger_than(self, max_payload: int) -> None:
        """Drop what no longer fits: the path's size fell while it waited."""
        runs: deque[tuple[float, int]] = deque()
        kept: list[bytes] = []
        for queued_at, count in self._runs:
            before = len(kept)
            for _ in range(count):
                frame = self.frames.popleft()
                if len(frame) <= max_payload:
                    kept.append(frame)
            if len(kept) > before:
                runs.append((queued_at, len(kept) - before))
            self.drops[DropReason.DATAGRAM_TOO_LARGE] += count - (len(kept) - before)
        self.frames.extend(kept)
        self._runs = runs
        self._settled = len(kept)
        self.drops += DropCounts()  # forget reasons that counted zero

    def clear(self, reason: DropReason) -> None:
        """Drop everything for that reason."""
        if self.frames:
            self.drops[reason] += len(self.frames)
            self.frames.clear()
            self._runs.clear()
            self._settled = 0
