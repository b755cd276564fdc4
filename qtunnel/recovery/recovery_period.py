"""Which losses belong together: one recovery period, one reduction of the window (RFC 9002 §7.3.2).

A period begins with the loss, or the congestion mark, of a packet that was sent after the last one began; it is
over when a packet sent during it is acknowledged. Packet numbers tell, as they grow with time:

    ... 40 41 42 | 43 ... 97 | 98 ...        48 lost when 97 was the last sent: a period with end 97.
                 |           |               60 lost later: the same one. 98 lost: the next.
          end of the last   end              98 acknowledged: the window may grow again.

If every packet lost in a period turns out to have arrived, the period was a mistake and can be undone.
"""

from __future__ import annotations

__all__ = ["RecoveryPeriod"]


class RecoveryPeriod:
    """The newest recovery period; all numbers are packet numbers or counts of packets."""

    __slots__ = ("_last_end", "_members_above", "_missing", "end")

    def __init__(self) -> None:
        self.end = -1
        """Packets up to this number were sent before the period began; -1: there was none, or it is over."""
        self._last_end = -1
        self._members_above = -1
        # Packets lost in this period that have not arrived; None: it cannot be undone any more.
        self._missing: int | None = None

    def begin(self, largest_congested: int, largest_sent: int) -> bool:
        """Return whether the loss or mark of a packet begins a new period, and begin it then."""
        if largest_congested <= self.end:
            return False
        self._members_above = self._last_end
        self.end = self._last_end = largest_sent
        self._missing = 0
        return True

    def add_lost(self, first: int, count: int) -> None:
        """Note packets lost, which are of one run."""
        if self._missing is not None and first > self._members_above:
            self._missing += count

    def add_spurious(self, first: int, count: int) -> bool:
        """Note packets declared lost that arrived after all. Return whether that makes the period a mistake."""
        if self._missing is None or first <= self._members_above:
            return False
        self._missing -= count
        if self._missing > 0:
            return False
        self._missing = None
        self.end = self._last_end = self._members_above
        return True

    def forbid_undo(self) -> None:
        """Take the period for real, whatever arrives later."""
        self._missing = None

    def let_window_grow(self) -> None:
        """Count what is acknowledged next for growth, after persistent congestion (RFC 9002 appendix B.8)."""
        self.end = -1
