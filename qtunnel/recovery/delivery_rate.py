"""Delivery rate samples (draft-ietf-ccwg-bbr, "Delivery Rate Samples"). Sizes in bytes, times in seconds."""

from __future__ import annotations

from qtunnel.recovery.sent_packets import DeliverySnapshot

__all__ = ["DeliveryRateSampler"]


class DeliveryRateSampler:
    """What was delivered and lost so far, and when; and the snapshot each run takes of it when it is sent.

    delivered counts packets in flight that were acknowledged, those taken for lost before too; lost never
    counts MTU probes.
    """

    __slots__ = ("_app_limited_until", "_delivered_time", "_first_sent_time", "_snapshot", "delivered", "lost")

    def __init__(self) -> None:
        self.delivered = 0
        self.lost = 0
        self._delivered_time = 0.0
        self._first_sent_time = 0.0
        self._app_limited_until = 0
        self._snapshot: DeliverySnapshot | None = None

    @property
    def is_app_limited(self) -> bool:
        """Whether what is sent now says more about the sender's appetite than about the path."""
        return self._app_limited_until > 0

    def on_restart(self, now: float) -> None:
        """Begin the sampling interval at now: the first packet after silence is about to be sent."""
        self._first_sent_time = self._delivered_time = now
        self.on_app_limited(0)

    def on_app_limited(self, bytes_in_flight: int) -> None:
        """Mark everything until what is in flight now is delivered as limited by the sender."""
        self._app_limited_until = max(self.delivered + bytes_in_flight, 1)
        self._snapshot = None

    def snapshot(self) -> DeliverySnapshot:
        """Return what a run sent now has to remember."""
        if self._snapshot is None:
            self._snapshot = (
                self.delivered,
                self._delivered_time,
                self._first_sent_time,
                self.lost,
                self._app_limited_until > 0,
            )
        return self._snapshot

    def on_delivered(self, size: int, newest_time_sent: float, now: float) -> None:
        """Count size bytes as delivered. newest_time_sent: of the newest packet among them."""
        self.delivered += size
        self._delivered_time = now
        self._first_sent_time = newest_time_sent
        if 0 < self._app_limited_until < self.delivered:
            self._app_limited_until = 0
        self._snapshot = None

    def on_spurious(self, size: int) -> None:
        """Count bytes taken for lost as delivered after all."""
        self.delivered += size
        self._snapshot = None

    def on_lost(self, size: int) -> None:
        """Count bytes as lost."""
        self.lost += size
        self._snapshot = None
