"""What limited a sender in each tenth of the last ten seconds."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from qtunnel.quic.sending_limit import SendingLimit

__all__ = ["SLOT_S", "LimitHistory"]

SLOT_S: Final = 0.1
SLOTS: Final = 100
"""Ten seconds."""
CURRENT_SLOTS: Final = 10
"""A second: what held in most of it is what limits now."""
LEAST: Final = 3
"""So many of CURRENT_SLOTS a limit must have held in; less is a burst that passed."""


class LimitHistory:
    """Bounded: one entry for a slot in which something limited, none for the others."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[int, SendingLimit]] = deque(maxlen=SLOTS)

    def note(self, limit: SendingLimit, now: float) -> None:
        """Note what limits; the first word in a slot counts. now: seconds."""
        slot = int(now / SLOT_S)
        if limit is not SendingLimit.NOTHING and (not self._seen or self._seen[-1][0] < slot):
            self._seen.append((slot, limit))

    def current(self, now: float) -> SendingLimit:
        """Return what limited in most of the last second."""
        (limit, count), *_ = [*self._count(now, CURRENT_SLOTS).most_common(1), (SendingLimit.NOTHING, LEAST)]
        return limit if count >= LEAST else SendingLimit.NOTHING

    def shares(self, now: float) -> dict[str, float]:
        """Return the share of the last ten seconds, 0 to 1, by limit; the largest first, zeros left out."""
        return {str(limit): count / SLOTS for limit, count in self._count(now, SLOTS).most_common()}

    def _count(self, now: float, slots: int) -> Counter[SendingLimit]:
        oldest = int(now / SLOT_S) - slots
        return Counter(limit for slot, limit in self._seen if slot > oldest)
