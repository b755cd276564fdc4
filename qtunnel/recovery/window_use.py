"""Is the congestion window what limits the sender? It must not grow where it was not needed (RFC 9002 §7.8)."""

from __future__ import annotations

__all__ = ["WindowUse"]


class WindowUse:
    """Whether the window was full at any time in this round trip or the one before.

    At any time: while pacing spreads the window over the round trip it is full only for moments, and a sender
    held up by pacing is not limited by its application. Round trips are told by packet numbers.
    """

    __slots__ = ("_full_in_last_round", "_round_end", "is_full_in_round")

    def __init__(self) -> None:
        self.is_full_in_round = False
        """To be set when it is full."""
        self._full_in_last_round = False
        self._round_end = -1

    @property
    def is_cwnd_limited(self) -> bool:
        """Whether the window was full."""
        return self.is_full_in_round or self._full_in_last_round

    def on_acked(self, largest_acked: int, largest_sent: int) -> None:
        """Note the newest packet acknowledged; it may end a round trip."""
        if largest_acked > self._round_end:
            self._round_end = largest_sent
            self._full_in_last_round = self.is_full_in_round
            self.is_full_in_round = False
