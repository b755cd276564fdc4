"""A set of integers kept as sorted, disjoint ranges: packet numbers received, lost, acknowledged."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["RangeSet"]


class RangeSet:
    """Integers as ranges [start, stop). Ranges that touch are one.

    The edges stand in one flat list, start and stop in turn. So an index says by its parity whether a place
    between two edges is inside, and every change is one slice assignment:

        edges   [ 2, 5,  8, 9 ]        holds 2 3 4 and 8
        index     0  1   2  3          even: where one begins, odd: where it has ended
    """

    __slots__ = ("_edges",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._edges: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """Put start up to, not including, stop into the set. An empty range changes nothing."""
        if start >= stop:
            return
        edges = self._edges
        # At the end, where an in-order packet belongs, without searching.
        if not edges or start > edges[-1]:
            edges += (start, stop)
            return
        low = bisect_left(edges, start)
        high = bisect_right(edges, stop)
        kept = []
        if not low & 1:
            kept.append(start)
        if not high & 1:
            kept.append(stop)
        edges[low:high] = kept

    def subtract(self, start: int, stop: int) -> None:
        """Take start up to, not including, stop out of the set."""
        if start >= stop:
            return
        edges = self._edges
        low = bisect_left(edges, start)
        high = bisect_right(edges, stop)
        kept = []
        if low & 1:
            kept.append(start)
        if high & 1:
            kept.append(stop)
        edges[low:high] = kept

    def __contains__(self, number: int) -> bool:
        return bool(bisect_right(self._edges, number) & 1)

    def contains(self, number: int) -> bool:
        """Return whether a number is in the set; the same as `in`."""
        return number in self

    def covers(self, start: int, stop: int) -> bool:
        """Return whether every number from start up to, not including, stop is in the set."""
        if start >= stop:
            return True
        index = bisect_right(self._edges, start)
        return bool(index & 1) and self._edges[index] >= stop

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether any number from start up to, not including, stop is in the set."""
        if start >= stop:
            return False
        edges = self._edges
        index = bisect_right(edges, start)
        return bool(index & 1) or (index < len(edges) and edges[index] < stop)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop), lowest first. The set must not be changed meanwhile."""
        edges = self._edges
        return zip(edges[::2], edges[1::2], strict=True)

    def newest_first(self, most: int | None = None) -> list[tuple[int, int]]:
        """Return up to `most` ranges as inclusive (first, last), highest first, as an ACK frame has them."""
        edges = self._edges
        first = 0 if most is None else max(0, len(edges) - 2 * most)
        return [(edges[index], edges[index + 1] - 1) for index in range(len(edges) - 2, first - 1, -2)]

    def cap(self, most: int) -> int | None:
        """Keep the `most` highest ranges. Return below which number the set forgot, None if it forgot nothing."""
        surplus = len(self._edges) - 2 * most
        if surplus <= 0:
            return None
        forgotten_below = self._edges[surplus - 1]
        del self._edges[:surplus]
        return forgotten_below

    def drop_below(self, number: int) -> None:
        """Take everything lower than a number out of the set."""
        edges = self._edges
        index = bisect_right(edges, number)
        if index & 1:
            index -= 1
            edges[index] = number
        del edges[:index]

    @property
    def lowest(self) -> int:
        """The lowest number. Raises: IndexError on an empty set."""
        return self._edges[0]

    @property
    def highest(self) -> int:
        """The highest number. Raises: IndexError on an empty set."""
        return self._edges[-1] - 1

    def count(self) -> int:
        """Return how many numbers are in the set."""
        edges = self._edges
        return sum(edges[1::2]) - sum(edges[::2])

    def __len__(self) -> int:
        """Return how many ranges there are."""
        return len(self._edges) >> 1

    def __bool__(self) -> bool:
        return bool(self._edges)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._edges == other._edges

    __hash__ = None  # type: ignore[assignment]  # it changes, and mypy wants a method here

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"
