"""What arrived in one packet number space: duplicates, the ranges to acknowledge, and when (RFC 9000 §13.2).

The duplicate filter is one wide integer whose bit n says that packet (largest - n) arrived, so that reordering
over thousands of packets loses none of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_ACK_RANGES", "ReceivedPackets"]

MAX_ACK_RANGES: Final = 64
"""Ranges in one ACK frame; some peers ignore more, and an older gap is of no use by then."""
WINDOW: Final = 8192
"""Packets below the largest of which we know whether they arrived; older ones count as duplicates (§13.2.3)."""
_MASK: Final = (1 << WINDOW) - 1
MAX_REPORTS: Final = 128
"""ACKs of ours kept to recognise what the peer knows; losing sight of one only repeats some ranges longer."""
ACK_EVERY: Final = 2
"""Ack-eliciting packets after which an ACK goes at once (§13.2.2); a burst read together counts as one more."""


class ReceivedPackets:
    """One space. max_ack_delay: seconds an ACK may wait for company, as we advertised it.

    ack_at: when an ACK is due, None for not at all. asked_at: when a packet last asked for one.
    """

    def __init__(self, *, max_ack_delay: float = 0.025) -> None:
        self.largest = -1
        self.largest_time = 0.0
        self.ack_at: float | None = None
        self.asked_at = float("-inf")  # when a packet last asked for an ACK
        self.ecn_counts = [0, 0, 0]  # ECT(0), ECT(1), CE
        self._max_ack_delay = max_ack_delay
        self._bits = 0
        self._ranges: list[list[int]] = []  # [first, last], lowest first
        self._eliciting = 0
        self._reports: deque[tuple[int, int]] = deque(maxlen=MAX_REPORTS)  # (our packet, largest it names)

    def is_new(self, number: int) -> bool:
        """Say whether this packet has not arrived before, and is not too old to tell."""
        back = self.largest - number
        if back < 0:
            return True
        return back < WINDOW and not self._bits >> back & 1

    def add(self, number: int, now: float) -> bool:
        """Note a packet; return whether it came out of order, which wants an ACK at once (§13.2.1)."""
        ahead = number - self.largest
        ranges = self._ranges
        if ahead > 0:
            in_order = ahead == 1 or self.largest < 0
            self._bits = (self._bits << ahead | 1) & _MASK if ahead < WINDOW else 1
            self.largest = number
            self.largest_time = now
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
                if len(ranges) > MAX_ACK_RANGES:
                    del ranges[0]
            return not in_order
        self._bits |= 1 << -ahead
        self._insert(number)
        return True

    def add_run(self, first: int, count: int, now: float) -> bool:
        """Note packets first, first + 1, …, all above the largest so far; return whether a gap precedes them."""
        last = first + count - 1
        ahead = last - self.largest
        in_order = first == self.largest + 1 or self.largest < 0
        self._bits = (self._bits << ahead | (1 << count) - 1) & _MASK if ahead < WINDOW else (1 << count) - 1
        self.largest = last
        self.largest_time = now
        ranges = self._ranges
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])
            if len(ranges) > MAX_ACK_RANGES:
                del ranges[0]
        return not in_order

    def received(self, *, eliciting: int, out_of_order: bool, now: float) -> None:
        """Note how many packets of a burst ask for an ACK, and set when it is due."""
        if not eliciting:
            return
        self.asked_at = now
        self._eliciting += eliciting
        if out_of_order or self._eliciting >= ACK_EVERY:
            self.ack_at = now
        elif self.ack_at is None:
            self.ack_at = now + self._max_ack_delay

    def count_ecn(self, ecn: int, packets: int) -> None:
        """Count the ECN marks of a burst, to be reported in ACKs (§13.4.1)."""
        if ecn == 2:
            self.ecn_counts[0] += packets
        elif ecn == 1:
            self.ecn_counts[1] += packets
        elif ecn == 3:
            self.ecn_counts[2] += packets
            self.ack_at = self.largest_time

    def take_ranges(self) -> list[tuple[int, int]]:
        """Return (first, last) of what to acknowledge, highest first; the ACK is no longer due."""
        self.ack_at = None
        self._eliciting = 0
        return [(first, last) for first, last in reversed(self._ranges)]

    def reported(self, number: int) -> None:
        """Note that packet number of ours says what arrived so far."""
        self._reports.append((number, self.largest))

    def acknowledged(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Stop acknowledging what the peer knows of, as packets of ours within ranges have told it (§13.2.4)."""
        reports = self._reports
        known = -1
        for first, last in ranges:  # highest first
            for number, largest in reversed(reports):
                if first <= number <= last:
                    known = max(known, largest)
                if number <= last:
                    break
            if known >= 0 or not reports or last < reports[0][0]:
                break
        if known < 0:
            return
        while reports and reports[0][1] <= known:
            reports.popleft()
        ranges_left = self._ranges
        while ranges_left and ranges_left[0][1] < known:
            del ranges_left[0]
        if ranges_left and ranges_left[0][0] < known:
            ranges_left[0][0] = known  # one stays: an ACK has to name something

    def take_over(self, ranges: Iterable[tuple[int, int]], now: float) -> None:
        """Begin with ranges (first, last), lowest first, that arrived before."""
        for first, last in ranges:
            for number in range(first, last + 1):
                self.add(number, now)

    def _insert(self, number: int) -> None:
        """Put a late packet into the ranges."""
        ranges = self._ranges
        for index in range(len(ranges) - 1, -1, -1):
            first, last = ranges[index]
            if first <= number <= last:
                return
            if number > last:
                touches = number == last + 1
                above = index + 1 < len(ranges) and ranges[index + 1][0] == number + 1
                if touches and above:
                    ranges[index][1] = ranges[index + 1][1]
                    del ranges[index + 1]
                elif touches:
                    ranges[index][1] = number
                elif above:
                    ranges[index + 1][0] = number
                else:
                    ranges.insert(index + 1, [number, number])
                break
        else:
            if ranges and ranges[0][0] == number + 1:
                ranges[0][0] = number
            elif len(ranges) < MAX_ACK_RANGES:
                ranges.insert(0, [number, number])
        if len(ranges) > MAX_ACK_RANGES:
            del ranges[0]
