"""Is the congestion window what limits the sender? It must not grow where it was not needed (RFC 9002 §7.8)."""

from __future__ import annotations

__all__ = ["WindowUse"]


class WindowUse:
    """How far the window was used in this round trip and the one before. Sizes in bytes.

    The most counts, not the moment: while pacing spreads the window over the round trip it is full only at times,
    and a sender held up by pacing is not limited by its application. Round trips are told by packet numbers.
    """

    __slots__ = ("_round_end", "_was_full", "_was_in_flight", "is_full", "most_in_flight")

    def __init__(self) -> None:
        self.most_in_flight = 0
        """In this round trip; LossRecovery sets it after each send, where a call would cost more."""
        self.is_full = False
        """Whether another datagram would not have fitted at any time in this round trip; set likewise."""
        self._was_in_flight = 0
        self._was_full = False
        self._round_end = -1

    def on_acked(self, largest_acked: int, largest_sent: int) -> None:
        """Note the newest packet acknowledged; it may end a round trip."""
        if largest_acked > self._round_end:
            self._round_end = largest_sent
            self._was_full, self.is_full = self.is_full, False
            self._was_in_flight, self.most_in_flight = self.most_in_flight, 0

    def is_cwnd_limited(self, window: int, ssthresh: float) -> bool:
        """Return whether a window limits the sender."""
        if self.is_full or self._was_full:
            return True
        # In slow start it may run ahead of what is in flight by as much as it grows in a round trip.
        return window < ssthresh and window < 2 * max(self.most_in_flight, self._was_in_flight)
