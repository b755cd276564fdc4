"""What a congestion controller is told and what it answers. It is told once per ACK, never once per packet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = [
    "K_INITIAL_WINDOW_BYTES",
    "AckSample",
    "CongestionControl",
    "LossSample",
    "LostRun",
    "initial_window",
    "minimum_window",
    "window_pacing_rate",
]

K_INITIAL_WINDOW_BYTES: Final = 14720
INITIAL_WINDOW_DATAGRAMS: Final = 10
MINIMUM_WINDOW_DATAGRAMS: Final = 2
PACING_FACTOR: Final = 1.25
"""So that pacing never keeps the window from being filled (RFC 9002 §7.7)."""
SLOW_START_PACING_FACTOR: Final = 2.0
"""The window doubles in a round trip, and with it what has to be sent in it."""


def initial_window(max_datagram_size: int) -> int:
    """Return the initial congestion window, bytes (RFC 9002 §7.2)."""
    return min(
        INITIAL_WINDOW_DATAGRAMS * max_datagram_size,
        max(K_INITIAL_WINDOW_BYTES, MINIMUM_WINDOW_DATAGRAMS * max_datagram_size),
    )


def minimum_window(max_datagram_size: int) -> int:
    """Return the smallest congestion window, bytes (RFC 9002 §7.2)."""
    return MINIMUM_WINDOW_DATAGRAMS * max_datagram_size


def window_pacing_rate(window: float, smoothed_rtt: float, *, in_slow_start: bool) -> float | None:
    """Return the rate that spreads a window over a round trip, bytes a second (RFC 9002 §7.7)."""
    if smoothed_rtt <= 0:
        return None
    return (SLOW_START_PACING_FACTOR if in_slow_start else PACING_FACTOR) * window / smoothed_rtt


@dataclass(slots=True)
class AckSample:
    """One ACK that acknowledged something in flight. Sizes in bytes, times in seconds, RTTs in seconds.

    The object is used again for the next ACK: nothing of it may be kept but its numbers.

    acked_after_recovery: of newly_acked_bytes, what was sent after the newest recovery period began; what was
    sent before must not make the window grow. rtt: of the newest packet acknowledged. is_cwnd_limited: whether
    the window is what limits the sender, not its application.

    The rest is the delivery rate sample (draft-ietf-ccwg-bbr): of the newest packet acknowledged that is no MTU
    probe; has_rate is False if there is none. prior_delivered, tx_in_flight, is_app_limited: as they were when
    it was sent. interval: over which sample_delivered bytes were delivered. sample_lost: lost since it was sent.
    """

    now: float = 0.0
    newly_acked_bytes: int = 0
    acked_after_recovery: int = 0
    newly_lost_bytes: int = 0
    bytes_in_flight: int = 0
    largest_acked: int = -1
    largest_sent: int = -1
    largest_sent_time: float = 0.0
    rtt: float = 0.0
    smoothed_rtt: float = 0.0
    min_rtt: float = 0.0
    is_cwnd_limited: bool = False
    has_rate: bool = False
    delivered: int = 0
    prior_delivered: int = 0
    sample_delivered: int = 0
    interval: float = 0.0
    tx_in_flight: int = 0
    sample_lost: int = 0
    is_app_limited: bool = False


@dataclass(slots=True, frozen=True)
class LostRun:
    """Packets of one run declared lost together. Sizes in bytes.

    size: of the packets lost; sent_size: of the whole run. lost_since_sent: of all packets, these included.
    """

    size: int
    sent_size: int
    tx_in_flight: int
    lost_since_sent: int
    is_app_limited: bool


@dataclass(slots=True)
class LossSample:
    """Packets in flight declared lost together, MTU probes not among them. Sizes in bytes, times in seconds.

    starts_recovery: the first loss of a recovery period; the window is reduced for it and for no other.
    ranges: how many rows of successive packet numbers were lost.
    """

    now: float
    lost_bytes: int
    largest_lost_sent_time: float
    bytes_in_flight: int
    delivered: int
    starts_recovery: bool
    ranges: int
    runs: list[LostRun] = field(default_factory=list)


class CongestionControl(Protocol):
    """How much may be in flight, and how fast it may be sent. Sizes in bytes, times in seconds."""

    name: str
    congestion_window: int
    ssthresh: float
    """Infinite until the first congestion; 0 for a controller without slow start in RFC 9002's sense."""
    pacing_rate: float | None
    """Bytes a second; None: nothing is known yet, or there is no pacing."""

    def on_idle_restart(self, now: float) -> None:
        """Take note that something is about to be sent and nothing is in flight."""

    def on_ack(self, sample: AckSample) -> None:
        """Take note of an ACK; losses it showed were reported before it."""

    def on_loss(self, sample: LossSample) -> None:
        """Take note of losses."""

    def on_spurious_loss(self, now: float) -> None:
        """Take note that everything lost in the newest recovery period has arrived after all."""

    def on_persistent_congestion(self, now: float) -> None:
        """Reduce the window to its minimum (RFC 9002 §7.6.2)."""

    def on_ecn_ce(self, now: float, *, starts_recovery: bool) -> None:
        """Take note of packets marked as having met congestion (RFC 9002 §7.1)."""

    def set_max_datagram_size(self, max_datagram_size: int) -> None:
        """Take a new datagram size. A smaller one scales the window down; a larger one does not raise it."""
