"""No congestion control: for paths whose rate is somebody else's business, and for measurements."""

from __future__ import annotations

from typing import Final

from qtunnel.recovery.congestion.base import AckSample, LossSample

__all__ = ["Unlimited"]

NO_LIMIT: Final = 1 << 40
"""Bytes; more than ever fits into any path, and still an int that arithmetic is quick with."""


class Unlimited:
    """A window without end, no pacing. Whoever uses it has to see to it that the path is not flooded."""

    __slots__ = ("congestion_window", "name", "pacing_rate", "ssthresh")

    def __init__(self) -> None:
        self.name = "none"
        self.congestion_window = NO_LIMIT
        self.ssthresh = 0.0
        self.pacing_rate: float | None = None

    def on_idle_restart(self, now: float) -> None:
        """Do nothing."""

    def on_ack(self, sample: AckSample) -> None:
        """Do nothing."""

    def on_loss(self, sample: LossSample) -> None:
        """Do nothing."""

    def on_spurious_loss(self, now: float) -> None:
        """Do nothing."""

    def on_persistent_congestion(self, now: float) -> None:
        """Do nothing."""

    def on_ecn_ce(self, now: float, *, starts_recovery: bool) -> None:
        """Do nothing."""

    def set_max_datagram_size(self, max_datagram_size: int) -> None:
        """Do nothing."""
