"""The question put to a path that may have become narrower: pairs of packets, one large and one small.

    large lost, small arrived     a sign that the size is the reason
    large arrived                 the end of all suspicion
    small lost too                says nothing: anything would have been lost then

Pairs go a round trip apart. Those whose small packets were acknowledged at one moment are one event, and count as
one: a receiver that was stopped, a queue that was full, however many pairs fell into it. Only where more than five
are needed, as losses are frequent, an event counts as two at most: at least three events are always needed.
"""

from __future__ import annotations

from math import ceil
from typing import Final

__all__ = ["Pair", "Trial"]

APART: Final = 0.3
"""Of a round trip: small packets acknowledged within less belong to one event."""
MIN_APART: Final = 0.001
FULL_DISTANCE: Final = 5
"""More pairs than this are needed only where losses are frequent; they go closer, in as many round trips as these.
The distance is against losses that come together, the number against those that come singly."""
PATIENCE: Final = 12
"""After so many pairs in a row without an answer the next ones go out ever slower: nothing at all gets through."""


class Pair:
    """A large and a small packet sent together. Times in seconds; None: not known, or not yet."""

    __slots__ = ("companion_acked", "is_void", "probe_lost", "sent")

    def __init__(self, sent: float) -> None:
        self.sent = sent
        self.probe_lost = False
        self.companion_acked: float | None = None
        self.is_void = False

    @property
    def speaks_against(self) -> bool:
        """Whether only the small packet arrived."""
        return self.probe_lost and self.companion_acked is not None and not self.is_void


class Trial:
    """One suspicion: since when, of which size, and what the pairs have said so far.

    needed: so many pairs have to speak against the path. acquitted_after: a packet of the size that was sent later
    than this and arrives ends it. proved: the largest size that has got through since; 0: none.
    """

    __slots__ = ("_apart", "acquitted_after", "needed", "next_pair", "pairs", "proved", "reason", "since", "size")

    def __init__(
        self, *, size: int, since: float, needed: int, acquitted_after: float, first_pair: float, reason: str
    ) -> None:
        self.size = size
        self.since = since
        self.needed = needed
        self.acquitted_after = acquitted_after
        self.next_pair = first_pair
        self.reason = reason
        self.pairs: list[Pair] = []
        self._apart = 0.0
        self.proved = 0

    def start_pair(self, now: float, shortest: float, usual: float) -> Pair:
        """Note that a pair is sent now, and when the next one is due. shortest, usual: round trips, seconds."""
        pair = Pair(now)
        self.pairs.append(pair)
        # Where others fill a queue an answer takes longer than the shortest round trip: no flood until it comes.
        apart = max(shortest * min(FULL_DISTANCE / self.needed, 1.0), usual / (self.needed + 1), MIN_APART)
        self._apart = apart
        surplus = self._unanswered() - PATIENCE
        self.next_pair = now + apart * (1 << min(max(surplus, 0), 10))
        return pair

    def on_companion_acked(self, pair: Pair, now: float) -> None:
        """Take note that a small packet arrived: no reason to be slow any more. Others' pairs are ignored."""
        if pair not in self.pairs:
            return
        if pair.companion_acked is None:
            pair.companion_acked = now
        self.next_pair = min(self.next_pair, max(now, self.pairs[-1].sent + self._apart))

    @property
    def speaks_against(self) -> bool:
        """Whether any pair does."""
        return any(pair.speaks_against for pair in self.pairs)

    def _unanswered(self) -> int:
        """Return how many of the newest pairs have had no answer."""
        for index, pair in enumerate(reversed(self.pairs)):
            if pair.companion_acked is not None:
                return index
        return len(self.pairs)

    def count(self, round_trip: float) -> int:
        """Return how much speaks against the path: pairs, of one event no more than a fifth of those needed."""
        apart = max(APART * round_trip, MIN_APART)
        most = ceil(self.needed / FULL_DISTANCE)
        times = sorted(
            pair.companion_acked for pair in self.pairs if pair.speaks_against and pair.companion_acked is not None
        )
        count, of_event, last = 0, 0, float("-inf")
        for time in times:
            if time >= last + apart:
                of_event, last = 0, time
            if of_event < most:
                of_event += 1
                count += 1
        return count

    def is_convicted(self, round_trip: float) -> bool:
        """Whether enough of them do."""
        return self.count(round_trip) >= self.needed

    def excuse(self, now: float, apart: float) -> None:
        """Void every pair: we slept. The next goes out after a round trip."""
        for pair in self.pairs:
            pair.is_void = True
        self.since = self.acquitted_after = now
        self.next_pair = now + apart
