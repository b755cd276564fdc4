"""Losses that may mean a path became narrower, and the losses that are usual on it (RFC 8899 §4.3).

A loss counts only while no packet as large, sent later, was acknowledged: that ends ordinary loss's part in it.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

__all__ = ["Evidence", "LossRate"]

FALSE_ALARM: Final = 1e-6
"""How improbable it must be that all pairs were lost by chance."""
MIN_PAIRS: Final = 3
MAX_PAIRS: Final = 9
PRIOR_LOST: Final = 1
PRIOR_PACKETS: Final = 20
"""Before anything is known a path loses one packet in twenty: wrong on the side that asks one pair more."""
HALVE_AT: Final = 2000
MAX_STEPS: Final = 16
COUNT: Final = 3
MAX_COUNT: Final = 24


class LossRate:
    """The share of large packets that are lost, the last few thousand in view."""

    __slots__ = ("_acked", "_lost")

    def __init__(self) -> None:
        self._acked = 0.0
        self._lost = 0.0

    def add(self, acked: int, lost: int) -> None:
        """Count packets."""
        self._acked += acked
        self._lost += lost
        if self._acked + self._lost > HALVE_AT:
            self._acked /= 2
            self._lost /= 2

    @property
    def rate(self) -> float:
        """The rate, 0 to 1, on the high side while little is known."""
        return (self._lost + PRIOR_LOST) / (self._acked + self._lost + PRIOR_PACKETS)

    @property
    def pairs_needed(self) -> int:
        """How many pairs in a row chance would lose less often than once in a million."""
        return min(max(ceil(log(FALSE_ALARM) / log(min(self.rate, 0.9))), MIN_PAIRS), MAX_PAIRS)


class Evidence:
    """Large packets lost with none as large acknowledged that was sent later. Sizes in bytes, times in seconds.

    count: how many. size: of the largest. first_sent, last_sent: when the oldest and the newest was sent.
    watch_at: from when on even a single one is reason to ask; None: there is none.
    """

    __slots__ = (
        "_acked_sizes",
        "_excused_until",
        "count",
        "first_sent",
        "last_sent",
        "loss_rate",
        "size",
        "threshold",
        "watch_at",
    )

    def __init__(self) -> None:
        self.loss_rate = LossRate()
        self.threshold = COUNT
        # Largest first, each sent later than those before it: the newest acknowledged of at least a size.
        self._acked_sizes: list[tuple[int, float]] = []
        self._excused_until = float("-inf")
        self.clear()

    def clear(self) -> None:
        """Forget the losses; they are no part of the loss rate either."""
        self.count = 0
        self.size = 0
        self.first_sent = 0.0
        self.last_sent = float("-inf")
        self.watch_at: float | None = None

    @property
    def is_enough(self) -> bool:
        """Whether so much was lost that it need not be waited for an acknowledgement that clears it."""
        return self.count >= self.threshold

    def on_acked(self, size: int, count: int, newest_sent: float) -> None:
        """Take packets acknowledged."""
        self.loss_rate.add(count, 0)
        steps = self._acked_sizes
        if steps and size >= steps[0][0] and newest_sent >= steps[-1][1]:
            self._acked_sizes = [(size, newest_sent)]
        else:
            steps = [each for each in steps if each[0] > size or each[1] > newest_sent]
            if not any(each[0] >= size and each[1] >= newest_sent for each in steps):
                steps.append((size, newest_sent))
                steps.sort(reverse=True)
            self._acked_sizes = steps[-MAX_STEPS:]
        if self.count and size >= self.size and newest_sent > self.last_sent:
            self.loss_rate.add(0, self.count)
            self.clear()

    def newest_acked(self, size: int) -> float:
        """Return when the newest packet of at least a size that was acknowledged had been sent."""
        return max((sent for each, sent in self._acked_sizes if each >= size), default=float("-inf"))

    def on_lost(self, size: int, count: int, sent: float, watch_at: float) -> None:
        """Take packets lost. watch_at: when to ask, if these are the first and nothing clears them until then."""
        if sent <= self._excused_until:
            return
        if sent <= self.newest_acked(size):
            self.loss_rate.add(0, count)
            return
        if not self.count:
            self.first_sent = sent
            self.watch_at = watch_at
        self.count += count
        self.size = max(self.size, size)
        self.first_sent = min(self.first_sent, sent)
        self.last_sent = max(self.last_sent, sent)

    def on_false_alarm(self) -> None:
        """Ask for more before the next suspicion: losses were all it was."""
        self.loss_rate.add(0, self.count)
        self.clear()
        self.threshold = min(2 * self.threshold, MAX_COUNT)

    def be_patient_no_more(self) -> None:
        """Begin again with the least that is reason for suspicion."""
        self.threshold = COUNT

    def excuse(self, now: float) -> None:
        """Forget what was lost until now, and what was sent until now and will be lost."""
        self._excused_until = now
        self.clear()
