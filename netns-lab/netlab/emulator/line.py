"""The model of one direction of a link (netlab.shape), in virtual time: no clock, no sockets."""

from __future__ import annotations

import random
from collections import deque
from enum import Enum, auto

from netlab.shape import ETHERNET_HEADER, Shape


class Fate(Enum):
    """What becomes of a packet that has arrived."""

    QUEUED = auto()
    DROPPED = auto()
    PASSED = auto()  # goes on at once: it was chosen to overtake the others


class Line:
    """A queue, a wire of some rate and a delay line behind it, all first in first out.

    Times are float seconds of one clock. Arrivals must not go back in time, though they may lie in the past:
    whether the queue was full is judged as of the arrival, not as of the call.
    """

    def __init__(self, shape: Shape) -> None:
        self.packets = 0
        self.lost = 0
        self.overflowed = 0
        self._random = random.Random(shape.seed)
        self._line: deque[tuple[float, int]] = deque()
        self._occupied: deque[float] = deque()  # due times of what was there at the last arrival
        self._free = 0.0
        self._last_due = 0.0
        self.shape = shape
        self._byte_time = _byte_time(shape)

    def change(self, shape: Shape) -> None:
        """Take new settings for what arrives from now on; what is under way keeps its time."""
        if shape.seed != self.shape.seed:
            self._random = random.Random(shape.seed)
        self.shape = shape
        self._byte_time = _byte_time(shape)

    def arrive(self, packet: int, length: int, at: float) -> Fate:
        """Decide about a packet of length bytes (IP) that arrived at a time; packet is its id for release."""
        shape = self.shape
        self.packets += 1
        if shape.loss and self._random.random() < shape.loss:
            self.lost += 1
            return Fate.DROPPED
        occupied = self._occupied
        while occupied and occupied[0] <= at:
            occupied.popleft()
        size = length + ETHERNET_HEADER
        free = self._free if self._free > at else at
        if len(occupied) >= shape.limit_packets or (
            shape.limit_bytes is not None and (free - at) / self._byte_time + size > shape.limit_bytes
        ):
            self.overflowed += 1
            return Fate.DROPPED
        if shape.reorder and self._random.random() < shape.reorder:
            return Fate.PASSED
        self._free = free + size * self._byte_time
        # After the delay was lowered nothing overtakes: the line stays first in first out.
        due = self._last_due = max(self._free + shape.delay_s, self._last_due)
        self._line.append((due, packet))
        occupied.append(due)
        return Fate.QUEUED

    def next_due(self) -> float | None:
        """Return when the next packet may go on, None if there is none."""
        return self._line[0][0] if self._line else None

    def release(self, now: float) -> tuple[int, float] | None:
        """Let go of all packets that are due: the last one's id, and how late the first one is, in seconds.

        All before it are meant as well (NFQUEUE's batch verdict). None if nothing is due.
        """
        line = self._line
        if not line or line[0][0] > now:
            return None
        late = now - line[0][0]
        packet = 0
        while line and line[0][0] <= now:
            packet = line.popleft()[1]
        return packet, late


def _byte_time(shape: Shape) -> float:
    return 8 / shape.rate_bps if shape.rate_bps else 0.0
