"""When to try again, and when not to: back-off with jitter (RFC 9000 leaves it to the application)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qtunnel.tunnel.events import CloseReason

__all__ = ["Backoff", "is_final"]

STABLE_AFTER: Final = 10.0
"""Seconds a tunnel must have been up for the next outage to start from the shortest delay."""

_FINAL: Final = frozenset(
    {
        CloseReason.LOCAL,
        CloseReason.AUTHENTICATION,
        CloseReason.NOT_VERIFIED,
        CloseReason.REFUSED,
        CloseReason.UNSUPPORTED,
        CloseReason.REPLACED,
    }
)


def is_final(reason: CloseReason) -> bool:
    """Say whether trying again cannot help: a wrong token stays wrong, and hammering helps nobody."""
    return reason in _FINAL


class Backoff:
    """Delays that double from shortest to longest, each spread by up to half.

    The spread keeps a thousand clients of a restarted server from coming back at the same moment.
    uniform: returns a float in [0, 1), such as random.random.
    """

    def __init__(self, *, shortest: float, longest: float, uniform: Callable[[], float]) -> None:
        self._shortest = shortest
        self._longest = longest
        self._uniform = uniform
        self._failures = 0

    @property
    def failures(self) -> int:
        """Return the attempts that failed since the last stable tunnel."""
        return self._failures

    def next_delay(self, *, up_for: float) -> float:
        """Return the seconds to wait now. up_for: how long the tunnel was up before (0: it never was).

        The first attempt after a stable tunnel is immediate: the usual cause is a restart or a change of network.
        """
        if up_for >= STABLE_AFTER:
            self._failures = 0
            return 0.0
        self._failures += 1
        delay = min(self._longest, self._shortest * 2.0 ** min(self._failures - 1, 30))
        return delay * (0.5 + 0.5 * self._uniform())
