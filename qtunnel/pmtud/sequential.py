"""The search by the letter of RFC 8899 §5.3 and §8: one probe at a time, a size given up after MAX_PROBES."""

from __future__ import annotations

from qtunnel.pmtud.candidates import likely_below
from qtunnel.pmtud.config import MAX_PROBES
from qtunnel.pmtud.search import ParallelSearch

__all__ = ["SequentialSearch"]


class SequentialSearch(ParallelSearch):
    """As ParallelSearch, but a flight is one probe.

    The largest size first, then the likely ones by bisection, then what lies between two of these by bisection.
    """

    __slots__ = ()

    @property
    def high(self) -> int:
        """The smallest size above low that has failed for good; top + 1 if there is none."""
        return min((size for size, count in self._strikes.items() if count >= MAX_PROBES), default=self.top + 1)

    def next_flight(self, window: int) -> list[int]:
        """Return the size to ask for now, alone in a list; an empty one when there is none, or no room for it."""
        if self.is_complete:
            return []
        size = self._next_size()
        if size > window:
            return []
        self._suggested = None
        self.flights += 1
        return [size]

    def _next_size(self) -> int:
        low, high = self.low, self.high
        tried = [size for size in self._strikes if low < size < high]
        if tried:
            return tried[0]
        for size in (self._suggested, self._remembered):
            if size is not None and low < size < high:
                return size
        if high > self.top:
            return self.top
        likely = [size for size in likely_below(high, low, self._version) if size > low]
        return likely[len(likely) // 2] if likely else (low + high) // 2
