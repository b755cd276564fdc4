"""The other end: it gathers packet numbers and acknowledges every so many packets, or after a delay."""

from __future__ import annotations

from bisect import bisect_right

from netlab.pmtu.conditions import Conditions

__all__ = ["Ack", "Receiver"]

MAX_RANGES = 32
KEPT_RANGES = 64

Ack = tuple[float, list[tuple[int, int]], float]
"""When it was sent, its ranges, highest first, and its ack delay."""


class Receiver:
    """Takes packets in order of arrival and answers with ACKs. Times in seconds."""

    __slots__ = ("_ack_due", "_at_gaps", "_every", "_largest_time", "_max_delay", "_ranges", "_waiting")

    def __init__(self, conditions: Conditions) -> None:
        self._every = conditions.ack_every
        self._at_gaps = conditions.ack_at_gaps
        self._max_delay = conditions.max_ack_delay
        self._ranges: list[list[int]] = []
        self._waiting = 0
        self._ack_due: float | None = None
        self._largest_time = 0.0

    @property
    def ack_due(self) -> float | None:
        """When an ACK is sent if nothing arrives until then."""
        return self._ack_due

    def on_due(self, now: float) -> Ack:
        """Send the ACK that is due."""
        return self._ack(now)

    def receive(self, number: int, now: float) -> Ack | None:
        """Take a packet; return the ACK it causes, if it does."""
        ranges = self._ranges
        in_order = number == (ranges[-1][1] + 1 if ranges else 0)
        if in_order and ranges:
            ranges[-1][1] = number
            self._largest_time = now
        elif not ranges or number > ranges[-1][1]:
            ranges.append([number, number])
            self._largest_time = now
            if len(ranges) > KEPT_RANGES:
                del ranges[0]
        else:
            self._insert(number)
        self._waiting += 1
        if self._waiting >= self._every or (self._at_gaps and not in_order):
            return self._ack(now)
        if self._ack_due is None:
            self._ack_due = now + self._max_delay
        return None

    def _insert(self, number: int) -> None:
        ranges = self._ranges
        index = bisect_right(ranges, [number, 1 << 62])
        if index == 0:
            if number == ranges[0][0] - 1:
                ranges[0][0] = number
            elif len(ranges) < KEPT_RANGES:
                ranges.insert(0, [number, number])
            return
        before = ranges[index - 1]
        if number <= before[1]:
            return
        after = ranges[index] if index < len(ranges) else None
        if number == before[1] + 1:
            before[1] = number
            if after is not None and after[0] == number + 1:
                before[1] = after[1]
                del ranges[index]
        elif after is not None and after[0] == number + 1:
            after[0] = number
        else:
            ranges.insert(index, [number, number])

    def _ack(self, now: float) -> Ack:
        self._waiting = 0
        self._ack_due = None
        newest = self._ranges[-MAX_RANGES:]
        return now, [(first, last) for first, last in reversed(newest)], now - self._largest_time
