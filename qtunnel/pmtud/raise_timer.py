"""When to see whether a path carries more by now (PMTU_RAISE_TIMER, RFC 8899 §5.1.1), and how often."""

from __future__ import annotations

from typing import Final

__all__ = ["RaiseTimer"]

MAX_BACKOFF: Final = 8
"""By which the interval grows at most (RFC 8899 §5.4)."""


class RaiseTimer:
    """Times in seconds. due_at: None while it does not run."""

    __slots__ = ("_backoff", "_interval", "_lowered_at", "due_at")

    def __init__(self, interval: float) -> None:
        self.due_at: float | None = None
        self._interval = interval
        self._backoff = 1
        self._lowered_at: float | None = None

    def start(self, now: float) -> None:
        """Run from now on."""
        self.due_at = now + self._interval * self._backoff

    def stop(self) -> None:
        """Run no longer."""
        self.due_at = None

    def take(self, now: float) -> bool:
        """Return whether it has expired; it is stopped then."""
        if self.due_at is None or now < self.due_at:
            return False
        self.due_at = None
        return True

    def on_lowered(self, now: float) -> None:
        """Take note that the size had to be lowered: again soon after the last time, it waits twice as long."""
        interval = self._interval * self._backoff
        if self._lowered_at is not None and now - self._lowered_at < 2 * interval:
            self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        else:
            self._backoff = 1
        self._lowered_at = now
        self.due_at = None
