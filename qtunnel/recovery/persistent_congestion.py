"""Persistent congestion: everything sent over a long time was lost (RFC 9002 §7.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qtunnel.recovery.sent_packets import ACK_ELICITING, MTU_PROBE, SentRun

__all__ = ["K_PERSISTENT_CONGESTION_THRESHOLD", "is_persistent_congestion"]

K_PERSISTENT_CONGESTION_THRESHOLD: Final = 3


def is_persistent_congestion(
    lost: Sequence[tuple[SentRun, int]], duration: float, first_rtt_sample_time: float | None
) -> bool:
    """Return whether packets declared lost together span more than `duration` seconds without one acknowledged.

    lost: runs, oldest first, each with the bits lost now. Only ack-eliciting packets sent after the first RTT
    sample are the ends of such a span. An MTU probe is neither an end nor a gap, as its loss says nothing about
    congestion. A hole within a run is taken for an acknowledged packet.
    """
    if first_rtt_sample_time is None:
        return False
    start: float | None = None
    for run, mask in lost:
        if run.follows_gap or not mask & 1:
            start = None
        if run.flags & MTU_PROBE:
            continue
        is_end = run.flags & ACK_ELICITING and run.time_sent > first_rtt_sample_time
        if is_end:
            if start is None:
                start = run.time_sent
            elif run.time_sent - start > duration:
                return True
        if mask + (mask & -mask) != 1 << run.count:
            # There is a hole above its lowest lost packet. What was lost above the last hole begins a span anew.
            start = run.time_sent if is_end and mask >> (run.count - 1) else None
    return False
