"""The search in parallel: a flight of probes in a round trip, exact to the byte after three or four.

RFC 8899 §8 wants one probe in a round trip, which takes ten or more of them; `sequential` does that. Here a flight
is bounded by what congestion control lets be sent anyway (docs/design/0010-path-mtu.md).
"""

from __future__ import annotations

from typing import Final

from qtunnel.pmtud.candidates import first_flight, split
from qtunnel.pmtud.config import MAX_PROBES

__all__ = ["FLIGHT_BYTES", "ParallelSearch"]

FLIGHT_BYTES: Final = 12_000
"""What a flight may have at most, where the window allows it."""
JUMBO_PROBES: Final = 5
"""So many probes of the largest size may be a flight beyond an Ethernet's sizes."""
WAYS: Final = 6


class ParallelSearch:
    """What is known of a path's size, and what to ask next. Sizes in bytes of UDP payload.

    low: the largest size known to get through. top: the largest size worth asking for. Any size that gets through
    proves all smaller ones. A single loss only says where to look first: the search ends when `low` is `top`, or
    when the size one above `low` was lost MAX_PROBES times.
    """

    __slots__ = (
        "_is_fresh",
        "_is_second_look",
        "_remembered",
        "_strikes",
        "_suggested",
        "_version",
        "flights",
        "low",
        "top",
    )

    def __init__(self, low: int, top: int, version: int, *, is_fresh: bool = True) -> None:
        self.low = low
        self.top = top
        self.flights = 0
        self._version = version
        self._is_fresh = is_fresh
        self._is_second_look = False
        self._suggested: int | None = None
        self._remembered: int | None = None
        self._strikes: dict[int, int] = {}

    @property
    def high(self) -> int:
        """The smallest size above low that a probe was lost of; top + 1 if there is none."""
        return min(self._strikes, default=self.top + 1)

    @property
    def is_complete(self) -> bool:
        """Whether the end is known."""
        if self.low == self._remembered:
            return True
        return self.low >= self.top or self._strikes.get(self.low + 1, 0) >= MAX_PROBES

    def strikes(self, size: int) -> int:
        """Return how many probes of a size were lost since one was acknowledged."""
        return self._strikes.get(size, 0)

    def next_flight(self, window: int) -> list[int]:
        """Return the sizes to ask for now, largest first; none when there is nothing to ask or no room for it."""
        if self.is_complete:
            return []
        room = min(window, max(FLIGHT_BYTES, JUMBO_PROBES * self.top if self.top > FLIGHT_BYTES // 8 else 0))
        wanted = self._wanted(room)
        if self._suggested is not None and self.low < self._suggested < self.high:
            wanted = [self._suggested, *(size for size in wanted if size != self._suggested)]
        flight = []
        for size in wanted:
            if size <= room:
                flight.append(size)
                room -= size
        if flight and flight != [self._remembered]:
            self._is_fresh = self._is_second_look = False
            self._suggested = None
        if flight:
            self.flights += 1
        return sorted(flight, reverse=True)

    def _wanted(self, room: int) -> list[int]:
        """Return the sizes worth asking for, the most useful first; those that divide the gap all fit the room."""
        low, high = self.low, self.high
        if self._remembered is not None and self._remembered > low and not self.strikes(self._remembered):
            return [self._remembered]
        if self._is_fresh:
            return first_flight(low, self.top, self._version)
        if self._is_second_look:
            return sorted({low + 1, self.top})
        if high == low + 1:
            return [high] * (MAX_PROBES - self.strikes(high))
        if high > self.top and self.top <= room:
            return [self.top, *_fitting(low, high, room - self.top)]
        # What does not fit the room is not asked for yet.
        return _fitting(low, min(high, room + 1), room)

    def on_acked(self, size: int) -> bool:
        """Take note that a probe arrived. Return whether that is news."""
        if size <= self.low:
            return False
        self.low = min(size, self.top)
        self._strikes = {each: count for each, count in self._strikes.items() if each > size}
        return True

    def on_lost(self, size: int) -> None:
        """Take note that a probe was lost."""
        if self.low < size <= self.top:
            self._strikes[size] = self._strikes.get(size, 0) + 1

    def remember(self, size: int) -> None:
        """Ask for a size alone first; should it arrive, that is the end: it was one before."""
        self._remembered = size

    def suggest(self, size: int) -> None:
        """Ask for a size in the next flight, if it is still of interest then."""
        self._suggested = size

    def rule_out(self, size: int, top: int) -> None:
        """Take note that a size does not get through, whatever else is lost; top: the new largest to ask for."""
        self.top = top
        self._strikes[size] = MAX_PROBES

    def look_again(self) -> None:
        """Forget what was lost: the path may carry more by now. The next byte and the largest size are asked."""
        self._strikes = {}
        self._remembered = None
        self._is_fresh = False
        self._is_second_look = True


def _fitting(low: int, high: int, room: int) -> list[int]:
    """Return sizes that divide the gap into equal parts: as many as there is room for, up to WAYS parts."""
    for ways in range(WAYS, 1, -1):
        points = split(low, high, ways)
        if sum(points) <= room:
            return points
    return []
