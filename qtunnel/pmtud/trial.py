"""The question put to a path that may have become narrower: pairs of packets, one large and one small.

    large lost, small arrived     a sign that the size is the reason
    large arrived                 the end of all suspicion
    small lost                    says nothing: anything would have been lost then

Pairs go a round trip apart. Pairs whose small packets were acknowledged at one moment count once: a receiver that
was stopped, or a queue that was full, is one event, however many pairs fell into it.
"""

from __future__ import annotations

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


class Trial:
    """One suspicion: since when, of which size, and what the pairs have said so far.

    needed: so many pairs have to speak against the path. acquitted_after: a packet of the size that was sent later
    than this and arrives ends it. proved: the largest size that has got through since; 0: none.
    """

    __slots__ = ("acquitted_after", "needed", "next_pair", "pairs", "proved", "reason", "since", "size")

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
        self.proved = 0

    def start_pair(self, now: float, apart: float) -> Pair:
        """Note that a pair is sent now; the next one is due `apart` seconds later, a round trip."""
        pair = Pair(now)
        self.pairs.append(pair)
        apart *= min(FULL_DISTANCE / self.needed, 1.0)
        surplus = self._unanswered() - PATIENCE
        self.next_pair = now + max(apart, MIN_APART) * (1 << min(max(surplus, 0), 10))
        return pair

    def _unanswered(self) -> int:
        """Return how many of the newest pairs have had no answer."""
        for index, pair in enumerate(reversed(self.pairs)):
            if pair.companion_acked is not None:
                return index
        return len(self.pairs)

    def count(self, round_trip: float) -> int:
        """Return how many separate events speak against the path."""
        apart = max(APART * round_trip, MIN_APART)
        times = sorted(
            pair.companion_acked
            for pair in self.pairs
            if pair.probe_lost and not pair.is_void and pair.companion_acked is not None
        )
        count, last = 0, float("-inf")
        for time in times:
            if time >= last + apart:
                count += 1
                last = time
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
