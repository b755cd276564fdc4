"""Samples to feed a congestion controller with, without a LossRecovery."""

from __future__ import annotations

from qtunnel.recovery.congestion.base import AckSample, LossSample, LostRun

RTT = 0.1


def ack(
    now: float,
    acked: int,
    *,
    growing: int | None = None,
    rtt: float = RTT,
    limited: bool = True,
    largest_acked: int = 0,
    largest_sent: int = 0,
    in_flight: int = 0,
) -> AckSample:
    """Return an ACK of so many bytes. growing: of them, sent after the newest recovery period began."""
    return AckSample(
        now=now,
        newly_acked_bytes=acked,
        acked_after_recovery=acked if growing is None else growing,
        bytes_in_flight=in_flight,
        largest_acked=largest_acked,
        largest_sent=largest_sent,
        rtt=rtt,
        smoothed_rtt=rtt,
        min_rtt=rtt,
        is_cwnd_limited=limited,
    )


def loss(
    now: float = 0.0,
    size: int = 1200,
    *,
    starts_recovery: bool = True,
    delivered: int = 0,
    ranges: int = 1,
    runs: list[LostRun] | None = None,
) -> LossSample:
    """Return a loss of so many bytes."""
    return LossSample(
        now=now,
        lost_bytes=size,
        largest_lost_sent_time=now - RTT,
        bytes_in_flight=0,
        delivered=delivered,
        starts_recovery=starts_recovery,
        ranges=ranges,
        runs=runs or [],
    )
