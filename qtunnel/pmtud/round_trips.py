"""What path MTU discovery knows of the path's round trips. Seconds."""

from __future__ import annotations

from typing import Final

__all__ = ["RoundTrips"]

INITIAL_RTT: Final = 0.333
"""Until one was measured (RFC 9002 §6.2.2)."""
QUEUED: Final = 1.5
QUEUED_SECONDS: Final = 0.01
"""A round trip that takes this much longer than the shortest has waited in a queue."""


class RoundTrips:
    """The newest, the smoothed and the shortest round trip, and the probe timeout."""

    __slots__ = ("latest", "pto", "shortest", "smoothed")

    def __init__(self) -> None:
        self.latest = self.smoothed = self.shortest = INITIAL_RTT
        self.pto = 3 * INITIAL_RTT

    def update(self, latest: float, smoothed: float, shortest: float, pto: float) -> None:
        """Take newer ones."""
        if latest > 0:
            self.latest, self.smoothed, self.shortest, self.pto = latest, smoothed, shortest, pto

    @property
    def queued(self) -> float:
        """How long a packet waits in queues now; 0 where that is little."""
        if self.latest < QUEUED * self.shortest + QUEUED_SECONDS:
            return 0.0
        return self.latest - self.shortest
