"""The token bucket that limits ICMP errors (RFC 4443 §2.4 f, RFC 1812 §4.3.2.8)."""

from __future__ import annotations

from math import isfinite

from qtunnel.errors import ConfigError

__all__ = ["TokenBucket"]


class TokenBucket:
    """Allows burst events at once and rate a second in the long run. Full at the start.

    A burst is what lets traceroute work: three probes a hop in quick succession all get their answer.

    Raises: ConfigError if rate is negative or not finite, or burst is negative.
    """

    __slots__ = ("_last", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        if not (isfinite(rate) and rate >= 0):
            raise ConfigError(f"{rate} is no number of messages a second", field="icmp_rate")
        if not (isfinite(burst) and burst >= 0):
            raise ConfigError(f"{burst} is no number of messages", field="icmp_burst")
        self.rate = rate
        self.burst = burst
        self._tokens = float(burst)
        self._last: float | None = None

    def allow(self, now: float) -> bool:
        """Take one token and return True, or return False if there is none. now: seconds."""
        if self._last is None:
            self._last = now
        elif now > self._last:
            self._tokens = min(self.burst, self._tokens + (now - self._last) * self.rate)
            self._last = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
