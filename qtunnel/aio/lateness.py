"""How late wake-ups came in the last ten seconds: the largest, and what 99 of 100 stayed below."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Lateness"]

SLOT_S: Final = 1.0
SLOTS: Final = 10
BUCKETS: Final = 32
"""Bucket n holds what is below 2^n microseconds; the last one everything longer, half an hour and more."""


@dataclass(slots=True)
class _Slot:
    number: int
    largest: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)


class Lateness:
    """A histogram by powers of two for each of ten seconds. Times in seconds."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque(maxlen=SLOTS)

    def add(self, late: float, now: float) -> None:
        """Note one wake-up; a negative lateness is none."""
        number = int(now / SLOT_S)
        slots = self._slots
        if not slots or slots[-1].number != number:
            slots.append(_Slot(number))
        slot = slots[-1]
        if late > slot.largest:
            slot.largest = late
        slot.buckets[min(max(0, int(late * 1e6)).bit_length(), BUCKETS - 1)] += 1

    def count(self, now: float) -> int:
        """Return how many wake-ups there were."""
        return sum(sum(slot.buckets) for slot in self._recent(now))

    def largest(self, now: float) -> float:
        """Return the largest lateness."""
        return max((slot.largest for slot in self._recent(now)), default=0.0)

    def quantile(self, share: float, now: float) -> float:
        """Return what that share of the wake-ups, 0 to 1, stayed below: to a factor of two, never too little."""
        total = [sum(counts) for counts in zip(*(slot.buckets for slot in self._recent(now)), strict=True)]
        wanted = share * sum(total)
        largest = self.largest(now)
        seen = 0
        for bucket, count in enumerate(total):
            seen += count
            if count and seen >= wanted:
                return min(largest, 2.0**bucket / 1e6)
        return largest

    def _recent(self, now: float) -> list[_Slot]:
        oldest = int(now / SLOT_S) - SLOTS
        return [slot for slot in self._slots if slot.number > oldest]
