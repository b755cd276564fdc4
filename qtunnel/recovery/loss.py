"""Which packets are lost: by packets acknowledged after them, or by time (RFC 9002 §6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qtunnel.recovery.rtt import K_GRANULARITY, RttEstimator
from qtunnel.recovery.sent_packets import SentPackets, SentRun

__all__ = ["K_PACKET_THRESHOLD", "K_TIME_THRESHOLD", "MAX_PACKET_THRESHOLD", "Stall", "detect_lost", "loss_delay"]

K_PACKET_THRESHOLD: Final = 3
K_TIME_THRESHOLD: Final = 9 / 8
MAX_PACKET_THRESHOLD: Final = 64
"""How far reordering seen on the path may raise the packet threshold; the time threshold holds beyond."""

CLOCK_ERROR: Final = 1e-6
"""Seconds. now - (time_sent + delay) is not exactly zero when the timer goes off; without this it would go off
again and again for a loss that is a rounding error away."""


@dataclass(slots=True)
class Stall:
    """Time in which we slept, and so heard no ACK: it is no evidence of loss.

    Packets up to number `through` have `duration` seconds more before they are lost by time.
    """

    through: int = -1
    duration: float = 0.0


def loss_delay(rtt: RttEstimator) -> float:
    """Return after how many seconds a packet is lost once a later one is acknowledged (RFC 9002 §6.1.2)."""
    return max(K_TIME_THRESHOLD * max(rtt.latest_rtt, rtt.smoothed_rtt), K_GRANULARITY)


def detect_lost(
    sent: SentPackets, largest_acked: int, packet_threshold: int, delay: float, now: float, stall: Stall
) -> tuple[list[tuple[SentRun, int]], float | None]:
    """Take the lost packets out of sent.

    Returns their runs, oldest first, each with the bits lost; and the time at which the next one will be lost
    if nothing more is heard, or None.
    """
    candidates = sent.runs_through(largest_acked)
    if not candidates:
        return [], None
    lost: list[tuple[SentRun, int]] = []
    loss_time: float | None = None
    follows_gap = False
    for run in candidates:
        older = largest_acked - run.first
        lost_at = run.time_sent + delay
        if run.first <= stall.through:
            lost_at += stall.duration
        eligible = run.outstanding & ((1 << (older + 1)) - 1)
        if lost_at <= now + CLOCK_ERROR:
            mask = eligible
        else:
            below_threshold = older - packet_threshold + 1
            mask = run.outstanding & ((1 << below_threshold) - 1) if below_threshold > 0 else 0
            if mask != eligible and (loss_time is None or lost_at < loss_time):
                loss_time = lost_at
        if mask:
            run.outstanding ^= mask
            run.follows_gap = run.follows_gap or follows_gap
            lost.append((run, mask))
        follows_gap = run.outstanding != 0
    if lost:
        sent.remove_empty(len(candidates))
    return lost, loss_time
