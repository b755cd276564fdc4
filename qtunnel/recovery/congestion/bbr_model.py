"""BBR's model of the path: how fast it delivers and how much it holds (draft-ietf-ccwg-bbr, "Network Path Model").

Sizes in bytes, times in seconds, bandwidths in bytes a second. Method names are those of the draft's pseudocode
in snake case. The state machine that acts on the model is in bbr.py.
"""

from __future__ import annotations

from math import inf
from typing import Final

from qtunnel.recovery.congestion.base import AckSample, initial_window
from qtunnel.recovery.congestion.bbr_filters import MaxBandwidthFilter, WindowedMaxFilter

__all__ = ["BETA", "HEADROOM", "LOSS_THRESH", "MIN_PIPE_CWND_DATAGRAMS", "BbrModel"]

LOSS_THRESH: Final = 0.02
BETA: Final = 0.7
HEADROOM: Final = 0.15
MIN_PIPE_CWND_DATAGRAMS: Final = 4
EXTRA_ACKED_FILTER_LEN: Final = 10
"""Round trips."""
MIN_RTT_FILTER_LEN: Final = 10.0
PROBE_RTT_INTERVAL: Final = 5.0
MAX_SEND_QUANTUM: Final = 65536
SEND_QUANTUM_SECONDS: Final = 0.001
CLOCK_ERROR: Final = 1e-6
"""Seconds by which an interval may fall short of min_rtt by rounding alone."""


class BbrModel:
    """The long-term and the short-term model, round trips, min_rtt and aggregation.

    delivery_rate: of the newest ACK; 0 if it gave none. max_bw: the long-term bandwidth, the largest of this
    probing cycle and the last one; bw: what to send at.
    """

    __slots__ = (
        "_app_limited_from",
        "_app_limited_until",
        "_extra_acked_delivered",
        "_extra_acked_filter",
        "_max_bw_filter",
        "bw",
        "bw_latest",
        "bw_shortterm",
        "delivered",
        "delivery_rate",
        "extra_acked",
        "extra_acked_interval_start",
        "inflight_latest",
        "inflight_longterm",
        "inflight_shortterm",
        "is_app_limited",
        "is_loss_in_round",
        "loss_round_delivered",
        "loss_round_start",
        "max_bw",
        "max_datagram_size",
        "min_rtt",
        "min_rtt_stamp",
        "next_round_delivered",
        "probe_rtt_expired",
        "probe_rtt_min_delay",
        "probe_rtt_min_stamp",
        "round_count",
        "round_start",
        "rounds_since_probe_up",
        "send_quantum",
    )

    def __init__(self, max_datagram_size: int) -> None:
        self.max_datagram_size = max_datagram_size
        self._max_bw_filter = MaxBandwidthFilter()
        self.max_bw = 0.0
        self.bw = 0.0
        self.delivery_rate = 0.0
        self.is_app_limited = False
        self.delivered = 0
        self._app_limited_from = self._app_limited_until = -1
        self.send_quantum = 2 * max_datagram_size
        # Long-term: this and the last bandwidth probing cycle.
        self.inflight_longterm: float = inf
        # Short-term: since the last probe, by losses.
        self.bw_shortterm = inf
        self.inflight_shortterm = inf
        self.bw_latest = 0.0
        self.inflight_latest = 0.0
        self.is_loss_in_round = False
        self.loss_round_delivered = 0
        self.loss_round_start = False
        # Round trips, told by what was delivered when a packet was sent.
        self.next_round_delivered = 0
        self.round_start = False
        self.round_count = 0
        self.rounds_since_probe_up = 0
        # The path's delay.
        self.min_rtt = inf
        self.min_rtt_stamp = 0.0
        self.probe_rtt_min_delay = inf
        self.probe_rtt_min_stamp: float | None = None
        self.probe_rtt_expired = False
        # Aggregation of ACKs.
        self.extra_acked = 0.0
        self.extra_acked_interval_start: float | None = None
        self._extra_acked_delivered = 0.0
        self._extra_acked_filter = WindowedMaxFilter()

    @property
    def min_pipe_cwnd(self) -> int:
        """The least that keeps a path with delayed ACKs busy."""
        return MIN_PIPE_CWND_DATAGRAMS * self.max_datagram_size

    # Per ACK

    def on_sample(self, sample: AckSample) -> None:
        """Take the delivery rate sample of an ACK (GenerateRateSample)."""
        self.delivered = sample.delivered
        self.delivery_rate = 0.0
        self.is_app_limited = sample.has_rate and (
            sample.is_app_limited or self._app_limited_from <= sample.prior_delivered <= self._app_limited_until
        )
        if sample.has_rate and sample.interval > 0 and sample.interval >= sample.min_rtt - CLOCK_ERROR:
            self.delivery_rate = sample.sample_delivered / sample.interval

    def update_latest_delivery_signals(self, sample: AckSample) -> None:
        """Take the sample into the maxima of this round trip."""
        self.loss_round_start = False
        if not sample.has_rate:
            return
        self.bw_latest = max(self.bw_latest, self.delivery_rate)
        self.inflight_latest = max(self.inflight_latest, sample.sample_delivered)
        if sample.prior_delivered >= self.loss_round_delivered:
            self.loss_round_delivered = self.delivered
            self.loss_round_start = True

    def advance_latest_delivery_signals(self, sample: AckSample) -> None:
        """Begin the maxima of the next round trip."""
        if self.loss_round_start:
            self.bw_latest = self.delivery_rate
            self.inflight_latest = sample.sample_delivered

    def update_round(self, sample: AckSample) -> None:
        """See whether a round trip is over: a packet sent after the last one ended was acknowledged."""
        self.round_start = sample.has_rate and sample.prior_delivered >= self.next_round_delivered
        if self.round_start:
            self.start_round()
            self.round_count += 1
            self.rounds_since_probe_up += 1

    def start_round(self) -> None:
        """Begin a round trip with what is sent from now on."""
        self.next_round_delivered = self.delivered

    def update_max_bw(self) -> None:
        """Take the sample into max_bw. A sender that is limited by itself can raise it, never lower it."""
        if self.delivery_rate > 0 and (self.delivery_rate >= self.max_bw or not self.is_app_limited):
            self._max_bw_filter.update(self.delivery_rate)
            self.max_bw = self._max_bw_filter.maximum

    def advance_max_bw_filter(self) -> None:
        """Begin a bandwidth probing cycle."""
        self._max_bw_filter.advance()
        self.max_bw = self._max_bw_filter.maximum

    def mark_app_limited(self, bytes_in_flight: int) -> None:
        """Take what is in flight and what is sent before it has gone for limited by the sender."""
        if self._app_limited_until < self.delivered:
            self._app_limited_from = self.delivered
        self._app_limited_until = self.delivered + bytes_in_flight

    def update_ack_aggregation(self, sample: AckSample, congestion_window: int, *, full_bw_reached: bool) -> None:
        """Estimate how much more is acknowledged at once than the bandwidth explains."""
        now = sample.now
        if self.extra_acked_interval_start is None:
            self.extra_acked_interval_start = now
        expected = self.bw * (now - self.extra_acked_interval_start)
        if self._extra_acked_delivered <= expected:
            self._extra_acked_delivered = 0.0
            self.extra_acked_interval_start = now
            expected = 0.0
        self._extra_acked_delivered += sample.newly_acked_bytes
        extra = min(self._extra_acked_delivered - expected, congestion_window)
        length = EXTRA_ACKED_FILTER_LEN if full_bw_reached else 1
        self.extra_acked = self._extra_acked_filter.update(extra, self.round_count, length)

    def update_min_rtt(self, rtt: float, now: float) -> None:
        """Take an RTT sample into min_rtt, and see whether it is time to look for a lower one."""
        stamp = self.probe_rtt_min_stamp
        self.probe_rtt_expired = stamp is not None and now > stamp + PROBE_RTT_INTERVAL
        if rtt < self.probe_rtt_min_delay or self.probe_rtt_expired:
            self.probe_rtt_min_delay = rtt
            self.probe_rtt_min_stamp = now
        if self.probe_rtt_min_delay < self.min_rtt or now > self.min_rtt_stamp + MIN_RTT_FILTER_LEN:
            self.min_rtt = self.probe_rtt_min_delay
            self.min_rtt_stamp = now if self.probe_rtt_min_stamp is None else self.probe_rtt_min_stamp

    # Losses

    def adapt_lower_bounds(self, congestion_window: int, *, is_probing_bw: bool) -> None:
        """Once per round trip with losses, come down to what was delivered, but not below BETA of before."""
        if is_probing_bw or not self.is_loss_in_round:
            return
        if self.bw_shortterm == inf:
            self.bw_shortterm = self.max_bw
        if self.inflight_shortterm == inf:
            self.inflight_shortterm = congestion_window
        self.bw_shortterm = max(self.bw_latest, BETA * self.bw_shortterm)
        self.inflight_shortterm = max(self.inflight_latest, BETA * self.inflight_shortterm)

    def reset_congestion_signals(self) -> None:
        """Forget the losses of this round trip."""
        self.is_loss_in_round = False
        self.bw_latest = 0.0
        self.inflight_latest = 0.0

    def reset_short_term_model(self) -> None:
        """Forget what losses said since the last probe."""
        self.bw_shortterm = inf
        self.inflight_shortterm = inf

    def bound_bw(self) -> None:
        """Set bw, the bandwidth to send at."""
        self.bw = min(self.max_bw, self.bw_shortterm)

    # Volumes

    def bdp_multiple(self, gain: float, bandwidth: float) -> float:
        """Return a multiple of the bandwidth-delay product; an initial window while the delay is unknown."""
        if self.min_rtt == inf:
            return initial_window(self.max_datagram_size)
        return gain * bandwidth * self.min_rtt

    def quantization_budget(self, volume: float, *, is_probing_up: bool) -> float:
        """Return a volume that leaves room for sending and acknowledging in bursts."""
        volume = max(volume, self.send_quantum, self.min_pipe_cwnd)
        return volume + 2 * self.max_datagram_size if is_probing_up else volume

    def set_inflight_longterm(self, volume: float) -> None:
        """Set the long-term volume, in whole bytes: a window that it bounds, and that is whole, must equal it."""
        self.inflight_longterm = int(volume)

    def inflight_with_headroom(self) -> float:
        """Return the long-term volume less a part that is left to others."""
        if self.inflight_longterm == inf:
            return inf
        headroom = max(self.max_datagram_size, HEADROOM * self.inflight_longterm)
        return max(self.inflight_longterm - headroom, self.min_pipe_cwnd)

    def set_send_quantum(self, pacing_rate: float) -> None:
        """Set what is sent in one go: a millisecond of the rate."""
        quantum = min(pacing_rate * SEND_QUANTUM_SECONDS, MAX_SEND_QUANTUM)
        self.send_quantum = int(max(quantum, 2 * self.max_datagram_size))

    def scale(self, factor: float) -> None:
        """Scale volumes with the datagram size; the bandwidth in bytes is not the size's business."""
        if self.inflight_longterm < inf:
            self.set_inflight_longterm(self.inflight_longterm * factor)
        self.inflight_shortterm *= factor
