"""Round-trip time estimation (RFC 9002 §5). Seconds."""

from __future__ import annotations

from typing import Final

__all__ = ["K_GRANULARITY", "RttEstimator"]

K_GRANULARITY: Final = 0.001


class RttEstimator:
    """smoothed_rtt, rttvar, min_rtt and latest_rtt of one path.

    Before the first sample smoothed_rtt is initial_rtt and min_rtt is infinite.
    """

    __slots__ = ("first_sample_time", "latest_rtt", "min_rtt", "rttvar", "smoothed_rtt")

    def __init__(self, initial_rtt: float) -> None:
        self.latest_rtt = 0.0
        self.smoothed_rtt = initial_rtt
        self.rttvar = initial_rtt / 2
        self.min_rtt = float("inf")
        self.first_sample_time: float | None = None

    @property
    def has_sample(self) -> bool:
        """Whether anything was measured yet."""
        return self.first_sample_time is not None

    def update(self, latest_rtt: float, ack_delay: float, now: float) -> None:
        """Take a sample (RFC 9002 §5.1 to 5.3). ack_delay: the peer's, capped already by its max_ack_delay."""
        self.latest_rtt = latest_rtt
        if self.first_sample_time is None:
            self.first_sample_time = now
            self.min_rtt = latest_rtt
            self.smoothed_rtt = latest_rtt
            self.rttvar = latest_rtt / 2
            return
        # min_rtt ignores the acknowledgment delay: it must never be an underestimate.
        if latest_rtt < self.min_rtt:
            self.min_rtt = latest_rtt
        adjusted_rtt = latest_rtt
        if latest_rtt >= self.min_rtt + ack_delay:
            adjusted_rtt = latest_rtt - ack_delay
        self.rttvar = 0.75 * self.rttvar + 0.25 * abs(self.smoothed_rtt - adjusted_rtt)
        self.smoothed_rtt = 0.875 * self.smoothed_rtt + 0.125 * adjusted_rtt

    def reset_min_rtt(self) -> None:
        """Start min_rtt over from the newest sample, after persistent congestion (RFC 9002 §5.2)."""
        if self.has_sample:
            self.min_rtt = self.latest_rtt
