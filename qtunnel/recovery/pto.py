"""The probe timeout (RFC 9002 §6.2). Seconds."""

from __future__ import annotations

from typing import Final

from qtunnel.recovery.rtt import K_GRANULARITY, RttEstimator

__all__ = ["backoff", "pto_period"]

MAX_BACKOFF_EXPONENT: Final = 16
"""Far beyond any idle timeout; only keeps the number finite."""


def pto_period(rtt: RttEstimator, max_ack_delay: float) -> float:
    """Return how long to wait for an ACK before asking for one, without backoff (RFC 9002 §6.2.1)."""
    return rtt.smoothed_rtt + max(4 * rtt.rttvar, K_GRANULARITY) + max_ack_delay


def backoff(pto_count: int) -> int:
    """Return the factor by which the period has grown after so many expiries: it doubles with each."""
    return 1 << min(pto_count, MAX_BACKOFF_EXPONENT)
