"""A rate limit: so many a second, so many at once. Takes the time, never reads it."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """rate: events a second in the long run. burst: events at once after a pause, at least 1."""

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, *, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._filled_at: float | None = None

    def allow(self, now: float) -> bool:
        """Return whether one more may happen now, and count it if so."""
        if self._filled_at is not None and now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
