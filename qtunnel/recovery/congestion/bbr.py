"""BBR, version 3 (draft-ietf-ccwg-bbr, after -06): send at the rate the path delivers, and look for more at times.

The draft's state machine; its model of the path is in bbr_model.py. Method names are those of the pseudocode in
snake case. Losses come run by run, which is what the draft calls a packet where it speaks of offload bursts.

    STARTUP > DRAIN > PROBE_BW_DOWN > PROBE_BW_CRUISE > PROBE_BW_REFILL > PROBE_BW_UP > PROBE_BW_DOWN > ...
    and from anywhere, every five seconds without a new lowest RTT, PROBE_RTT
"""

from __future__ import annotations

from math import inf
from typing import Final

from qtunnel.recovery.congestion.base import AckSample, LossSample, LostRun, initial_window, minimum_window
from qtunnel.recovery.congestion.bbr_model import BETA, LOSS_THRESH, BbrModel
from qtunnel.recovery.congestion.bbr_state import (
    GAINS,
    PROBE_BW,
    PROBE_RTT_CWND_GAIN,
    PROBING_BW,
    STARTUP_PACING_GAIN,
    AckPhase,
    State,
)

__all__ = ["Bbr"]

PACING_MARGIN: Final = 0.99
FULL_BW_GROWTH: Final = 1.25
FULL_BW_ROUNDS: Final = 3
STARTUP_FULL_LOSS_COUNT: Final = 6
DRAIN_ROUNDS: Final = 3
PROBE_RTT_DURATION: Final = 0.2
INITIAL_SRTT: Final = 0.001
"""Stands for the RTT in the first pacing rate while nothing was measured."""
MAX_PROBE_UP_ROUNDS: Final = 30
MAX_RENO_ROUNDS: Final = 63


class Bbr:
    """A pacing rate from the measured delivery rate, and a window of about twice what the path holds.

    Sizes in bytes, times in seconds, rates in bytes a second. seed: any number; it spreads the bandwidth probes
    of many flows in time.
    """

    __slots__ = (
        "_random",
        "_undo",
        "ack_phase",
        "bw_probe_up_acked",
        "bw_probe_up_rounds",
        "bw_probe_wait",
        "congestion_window",
        "cwnd_gain",
        "cycle_stamp",
        "drain_start_round",
        "full_bw",
        "full_bw_count",
        "full_bw_now",
        "full_bw_reached",
        "idle_restart",
        "is_bw_probe_sample",
        "loss_ranges_in_round",
        "max_datagram_size",
        "max_inflight",
        "model",
        "name",
        "pacing_gain",
        "pacing_rate",
        "prev_probe_precautionary",
        "prev_probe_too_high",
        "prior_cwnd",
        "probe_rtt_done_stamp",
        "probe_rtt_round_done",
        "probe_up_acked_per_inc",
        "recovery_ends_at",
        "recovery_start_round",
        "ssthresh",
        "state",
        "undo_state",
    )

    def __init__(self, max_datagram_size: int, *, seed: int = 0) -> None:
        self.name = "bbr"
        self.ssthresh = 0.0
        self.max_datagram_size = max_datagram_size
        self.model = BbrModel(max_datagram_size)
        self.congestion_window = initial_window(max_datagram_size)
        self.prior_cwnd = 0
        self.max_inflight = 0.0
        self._random = seed & 0xFFFFFFFF
        self._undo = (inf, inf, inf)  # bw_shortterm, inflight_shortterm, inflight_longterm
        self.undo_state: State | None = None
        self.idle_restart = False
        self.full_bw_reached = False
        self.full_bw_now = False
        self.full_bw = 0.0
        self.full_bw_count = 0
        self.drain_start_round = 0
        self.probe_up_acked_per_inc = inf
        self.bw_probe_up_acked = 0.0
        self.bw_probe_up_rounds = 0
        self.bw_probe_wait = 0.0
        self.cycle_stamp = 0.0
        self.is_bw_probe_sample = False
        self.prev_probe_too_high = False
        self.prev_probe_precautionary = False
        self.ack_phase = AckPhase.INIT
        self.probe_rtt_done_stamp: float | None = None
        self.probe_rtt_round_done = False
        # A recovery period is over when something sent after this was delivered is acknowledged.
        self.recovery_ends_at: int | None = None
        self.recovery_start_round = 0
        self.loss_ranges_in_round = 0
        self.pacing_rate: float | None = STARTUP_PACING_GAIN * self.congestion_window / INITIAL_SRTT
        self._enter(State.STARTUP)

    # What LossRecovery calls

    def on_idle_restart(self, now: float) -> None:
        """Pace at just the bandwidth after silence; silence during PROBE_RTT may have completed it."""
        if self.model.delivered == 0:
            return
        self.idle_restart = True
        self.model.extra_acked_interval_start = now
        if self.state in PROBE_BW:
            self._set_pacing_rate(1.0)
        elif self.state is State.PROBE_RTT:
            self._check_probe_rtt_done(now)

    def on_ack(self, sample: AckSample) -> None:
        """Update the model, the state and what follows from them (UpdateOnACK)."""
        model, now = self.model, sample.now
        is_first = model.delivered == 0
        model.on_sample(sample)
        if is_first:
            # The first RTT is known now (InitPacingRate).
            srtt = sample.smoothed_rtt or INITIAL_SRTT
            self.pacing_rate = STARTUP_PACING_GAIN * initial_window(self.max_datagram_size) / srtt
            model.min_rtt_stamp = now
        model.update_latest_delivery_signals(sample)
        model.update_round(sample)
        model.update_max_bw()
        if model.loss_round_start:
            model.adapt_lower_bounds(self.congestion_window, is_probing_bw=self.state in PROBING_BW)
        model.update_ack_aggregation(sample, self.congestion_window, full_bw_reached=self.full_bw_reached)
        self._check_full_bw_reached()
        self._check_startup_done(sample)
        if model.loss_round_start:
            model.is_loss_in_round = False
            self.loss_ranges_in_round = 0
        self._check_drain_done(sample)
        self._update_probe_bw_cycle_phase(sample)
        model.update_min_rtt(sample.rtt, now)
        self._check_probe_rtt(sample)
        model.advance_latest_delivery_signals(sample)
        model.bound_bw()
        self._check_recovery_done(sample)
        self._set_pacing_rate(self.pacing_gain)
        assert self.pacing_rate is not None
        model.set_send_quantum(self.pacing_rate)
        self._set_cwnd(sample)

    def on_loss(self, sample: LossSample) -> None:
        """Take note of lost runs (HandleLostPacket for each)."""
        if sample.starts_recovery:
            self._save_cwnd()
            self._begin_recovery(sample.delivered)
        self.loss_ranges_in_round += sample.ranges
        self._note_loss(sample.delivered)
        for run in sample.runs:
            if not self.is_bw_probe_sample:
                return
            if run.lost_since_sent > run.tx_in_flight * LOSS_THRESH:
                self._handle_inflight_too_high(
                    _inflight_at_loss(run), sample.now, is_app_limited=run.is_app_limited
                )

    def on_spurious_loss(self, now: float) -> None:
        """Return to what was before losses that were none (HandleSpuriousLossDetection)."""
        model = self.model
        self.recovery_ends_at = None
        self._restore_cwnd()
        model.is_loss_in_round = False
        self._reset_full_bw(0.0)
        bw_shortterm, inflight_shortterm, inflight_longterm = self._undo
        model.bw_shortterm = max(model.bw_shortterm, bw_shortterm)
        model.inflight_shortterm = max(model.inflight_shortterm, inflight_shortterm)
        model.inflight_longterm = max(model.inflight_longterm, inflight_longterm)
        if self.undo_state is State.STARTUP and self.state is not State.STARTUP:
            self.full_bw_reached = False
            if self.state is not State.PROBE_RTT:
                self._enter(State.STARTUP)
        elif (
            self.undo_state is State.PROBE_BW_UP
            and self.state is not State.PROBE_BW_UP
            and self.state is not State.PROBE_RTT
        ):
            self._start_probe_bw_refill()
        self.undo_state = None

    def on_persistent_congestion(self, now: float) -> None:
        """Go down to the minimum window (RFC 9002 §7.6.2); the model says how far up again."""
        self._save_cwnd()
        self._begin_recovery(self.model.delivered)
        self.congestion_window = minimum_window(self.max_datagram_size)

    def on_ecn_ce(self, now: float, *, starts_recovery: bool) -> None:
        """Take a congestion mark for a loss in this round trip."""
        if starts_recovery:
            self._save_cwnd()
            self._begin_recovery(self.model.delivered)
        self._note_loss(self.model.delivered)
        if self.is_bw_probe_sample:
            self._handle_inflight_too_high(self._target_inflight(), now, is_app_limited=self.model.is_app_limited)

    def set_max_datagram_size(self, max_datagram_size: int) -> None:
        """Take a new size. Volumes shrink with it, by the same factor, and never grow with it."""
        old, self.max_datagram_size = self.max_datagram_size, max_datagram_size
        self.model.max_datagram_size = max_datagram_size
        if max_datagram_size < old:
            factor = max_datagram_size / old
            self.model.scale(factor)
            self.prior_cwnd = int(self.prior_cwnd * factor)
            self.congestion_window = int(self.congestion_window * factor)
        self.congestion_window = max(self.congestion_window, minimum_window(max_datagram_size))

    # Startup and Drain

    def _enter(self, state: State) -> None:
        self.state = state
        self.pacing_gain, self.cwnd_gain = GAINS[state]

    def _reset_full_bw(self, bandwidth: float) -> None:
        self.full_bw = bandwidth
        self.full_bw_count = 0
        self.full_bw_now = False

    def _check_full_bw_reached(self) -> None:
        model = self.model
        if self.full_bw_now or not model.round_start or model.is_app_limited:
            return
        if model.delivery_rate >= self.full_bw * FULL_BW_GROWTH:
            self._reset_full_bw(model.delivery_rate)
            return
        self.full_bw_count += 1
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS
        if self.full_bw_now:
            self.full_bw_reached = True

    def _check_startup_done(self, sample: AckSample) -> None:
        if self.state is not State.STARTUP:
            return
        self._check_startup_high_loss(sample)
        if self.full_bw_reached:
            self._enter(State.DRAIN)
            self.drain_start_round = self.model.round_count

    def _check_startup_high_loss(self, sample: AckSample) -> None:
        """See whether a whole round trip in recovery lost too much: the pipe is full then."""
        model = self.model
        if (
            self.recovery_ends_at is None
            or not model.loss_round_start
            or model.round_count <= self.recovery_start_round
            or self.loss_ranges_in_round < STARTUP_FULL_LOSS_COUNT
            or not self._is_inflight_too_high(sample)
        ):
            return
        self.undo_state = State.STARTUP
        self.full_bw_reached = self.full_bw_now = True
        model.set_inflight_longterm(max(model.bdp_multiple(1.0, model.bw), model.inflight_latest))

    def _check_drain_done(self, sample: AckSample) -> None:
        if self.state is not State.DRAIN:
            return
        is_too_long = self.model.round_count > self.drain_start_round + DRAIN_ROUNDS
        if sample.bytes_in_flight <= self._inflight(1.0, self.model.bw) or is_too_long:
            self._start_probe_bw_down(sample.now)

    # ProbeBW

    def _start_probe_bw_down(self, now: float) -> None:
        self.model.reset_congestion_signals()
        self.probe_up_acked_per_inc = inf
        self._pick_probe_wait()
        self.cycle_stamp = now
        self.ack_phase = AckPhase.PROBE_STOPPING
        self.model.start_round()
        self._enter(State.PROBE_BW_DOWN)

    def _start_probe_bw_refill(self) -> None:
        self.model.reset_short_term_model()
        self.bw_probe_up_rounds = 0
        self.bw_probe_up_acked = 0.0
        self.prev_probe_precautionary = False
        self.ack_phase = AckPhase.REFILLING
        self.model.start_round()
        self._enter(State.PROBE_BW_REFILL)

    def _start_probe_bw_up(self) -> None:
        self.ack_phase = AckPhase.PROBE_STARTING
        self.model.start_round()
        self._reset_full_bw(self.model.delivery_rate)
        self._enter(State.PROBE_BW_UP)
        self._raise_inflight_longterm_slope()

    def _update_probe_bw_cycle_phase(self, sample: AckSample) -> None:
        if not self.full_bw_reached or self._adapt_long_term_model(sample):
            return
        if self.state is State.PROBE_BW_DOWN:
            if not self._is_time_to_probe_bw(sample.now) and self._is_time_to_cruise(sample):
                self._enter(State.PROBE_BW_CRUISE)
        elif self.state is State.PROBE_BW_CRUISE:
            self._is_time_to_probe_bw(sample.now)
        elif self.state is State.PROBE_BW_REFILL:
            if self.model.round_start:
                self.is_bw_probe_sample = True
                self._start_probe_bw_up()
        elif self.state is State.PROBE_BW_UP and self._is_time_to_go_down(sample):
            self.prev_probe_too_high = False
            self._start_probe_bw_down(sample.now)

    def _adapt_long_term_model(self, sample: AckSample) -> bool:
        """Follow what the ACKs say about the last probe. Return whether that decided the next state."""
        model = self.model
        if self.ack_phase is AckPhase.PROBE_STARTING and model.round_start:
            self.ack_phase = AckPhase.PROBE_FEEDBACK
        if self.ack_phase is AckPhase.PROBE_STOPPING and model.round_start:
            self.is_bw_probe_sample = False
            self.ack_phase = AckPhase.INIT
            if self.state in PROBE_BW:
                if not model.is_app_limited:
                    model.advance_max_bw_filter()
                if self.prev_probe_precautionary and not self.prev_probe_too_high:
                    self._start_probe_bw_refill()
                    return True
        if self._is_inflight_too_high(sample) or model.inflight_longterm == inf:
            return False
        if sample.has_rate and sample.tx_in_flight > model.inflight_longterm:
            model.inflight_longterm = sample.tx_in_flight
        if self.state is State.PROBE_BW_UP:
            self._probe_inflight_longterm_upward(sample)
        return False

    def _is_time_to_probe_bw(self, now: float) -> bool:
        """Return whether it is, having gone to REFILL then."""
        reno_rounds = min(self._target_inflight() / self.max_datagram_size, MAX_RENO_ROUNDS)
        if now > self.cycle_stamp + self.bw_probe_wait or self.model.rounds_since_probe_up >= reno_rounds:
            self._start_probe_bw_refill()
            return True
        return False

    def _pick_probe_wait(self) -> None:
        self.model.rounds_since_probe_up = int(self._next_random() * 2)
        self.bw_probe_wait = 2 + self._next_random()

    def _is_time_to_cruise(self, sample: AckSample) -> bool:
        model = self.model
        return sample.bytes_in_flight <= min(model.inflight_with_headroom(), self._inflight(1.0, model.max_bw))

    def _is_time_to_go_down(self, sample: AckSample) -> bool:
        model = self.model
        # What was in flight before this ACK, to the nearest datagram: only then can it have been at its limit.
        before = sample.bytes_in_flight + sample.newly_acked_bytes + sample.newly_lost_bytes
        if self.prev_probe_too_high and before + self.max_datagram_size > model.inflight_longterm:
            self.prev_probe_precautionary = True
            return True
        if sample.is_cwnd_limited and self.congestion_window >= model.inflight_longterm:
            # It is inflight_longterm that limits the bandwidth, so a plateau tells nothing.
            self._reset_full_bw(model.delivery_rate)
            return False
        return self.full_bw_now

    def _raise_inflight_longterm_slope(self) -> None:
        growth_this_round = 1 << self.bw_probe_up_rounds
        self.bw_probe_up_rounds = min(self.bw_probe_up_rounds + 1, MAX_PROBE_UP_ROUNDS)
        self.probe_up_acked_per_inc = max(self.congestion_window / growth_this_round, self.max_datagram_size)

    def _probe_inflight_longterm_upward(self, sample: AckSample) -> None:
        model = self.model
        if not sample.is_cwnd_limited or self.congestion_window < model.inflight_longterm:
            return
        self.bw_probe_up_acked += sample.newly_acked_bytes
        if self.bw_probe_up_acked >= self.probe_up_acked_per_inc:
            delta = self.bw_probe_up_acked // self.probe_up_acked_per_inc
            self.bw_probe_up_acked -= delta * self.probe_up_acked_per_inc
            model.inflight_longterm += delta * self.max_datagram_size
        if model.round_start:
            self._raise_inflight_longterm_slope()

    # ProbeRTT

    def _check_probe_rtt(self, sample: AckSample) -> None:
        model = self.model
        if self.state is not State.PROBE_RTT and model.probe_rtt_expired and not self.idle_restart:
            self._save_cwnd()
            self._enter(State.PROBE_RTT)
            self.probe_rtt_done_stamp = None
            self.ack_phase = AckPhase.PROBE_STOPPING
            model.start_round()
        if self.state is State.PROBE_RTT:
            self._handle_probe_rtt(sample)
        if sample.newly_acked_bytes > 0:
            self.idle_restart = False

    def _handle_probe_rtt(self, sample: AckSample) -> None:
        model = self.model
        model.mark_app_limited(sample.bytes_in_flight)
        if self.probe_rtt_done_stamp is None:
            if sample.bytes_in_flight <= self._probe_rtt_cwnd():
                self.probe_rtt_done_stamp = sample.now + PROBE_RTT_DURATION
                self.probe_rtt_round_done = False
                model.start_round()
            return
        if model.round_start:
            self.probe_rtt_round_done = True
        if self.probe_rtt_round_done:
            self._check_probe_rtt_done(sample.now)

    def _check_probe_rtt_done(self, now: float) -> None:
        if self.probe_rtt_done_stamp is None or now <= self.probe_rtt_done_stamp:
            return
        self.model.probe_rtt_min_stamp = now
        self._restore_cwnd()
        self.model.reset_short_term_model()
        if self.full_bw_reached:
            self._start_probe_bw_down(now)
            # What is in flight is below the estimated BDP already.
            self._enter(State.PROBE_BW_CRUISE)
        else:
            self._enter(State.STARTUP)

    # Losses

    def _begin_recovery(self, delivered: int) -> None:
        self.recovery_ends_at = delivered
        self.recovery_start_round = self.model.round_count

    def _check_recovery_done(self, sample: AckSample) -> None:
        ends_at = self.recovery_ends_at
        if ends_at is not None and sample.has_rate and sample.prior_delivered >= ends_at:
            self.recovery_ends_at = None
            self._restore_cwnd()

    def _note_loss(self, delivered: int) -> None:
        model = self.model
        if not model.is_loss_in_round:
            model.loss_round_delivered = delivered
            self._save_cwnd()
            self.undo_state = None
            self._undo = (model.bw_shortterm, model.inflight_shortterm, model.inflight_longterm)
        model.is_loss_in_round = True

    @staticmethod
    def _is_inflight_too_high(sample: AckSample) -> bool:
        return sample.has_rate and sample.sample_lost > sample.tx_in_flight * LOSS_THRESH

    def _handle_inflight_too_high(self, tx_in_flight: float, now: float, *, is_app_limited: bool) -> None:
        self.prev_probe_too_high = True
        self.is_bw_probe_sample = False
        if not is_app_limited:
            self.model.set_inflight_longterm(max(tx_in_flight, self._target_inflight() * BETA))
        if self.state is State.PROBE_BW_UP:
            self.undo_state = State.PROBE_BW_UP
            self._start_probe_bw_down(now)

    # Rate and window

    def _target_inflight(self) -> float:
        return min(self.model.bdp_multiple(1.0, self.model.bw), self.congestion_window)

    def _inflight(self, gain: float, bandwidth: float) -> float:
        model = self.model
        return model.quantization_budget(
            model.bdp_multiple(gain, bandwidth), is_probing_up=self.state is State.PROBE_BW_UP
        )

    def _set_pacing_rate(self, gain: float) -> None:
        rate = gain * self.model.bw * PACING_MARGIN
        if rate > 0 and (self.full_bw_reached or self.pacing_rate is None or rate > self.pacing_rate):
            self.pacing_rate = rate

    def _set_cwnd(self, sample: AckSample) -> None:
        model = self.model
        self.max_inflight = model.quantization_budget(
            model.bdp_multiple(self.cwnd_gain, model.bw) + model.extra_acked,
            is_probing_up=self.state is State.PROBE_BW_UP,
        )
        window: float = self.congestion_window
        if self.full_bw_reached:
            window = min(window + sample.newly_acked_bytes, self.max_inflight)
        elif window < self.max_inflight or sample.delivered < initial_window(self.max_datagram_size):
            window += sample.newly_acked_bytes
        window = max(window, model.min_pipe_cwnd)
        if self.state is State.PROBE_RTT:
            window = min(window, self._probe_rtt_cwnd())
        self.congestion_window = int(min(window, self._volume_cap()))

    def _volume_cap(self) -> float:
        model = self.model
        cap = inf
        if self.state is State.PROBE_RTT or self.state is State.PROBE_BW_CRUISE:
            cap = model.inflight_with_headroom()
        elif self.state in PROBE_BW:
            cap = model.inflight_longterm
        return max(min(cap, model.inflight_shortterm), model.min_pipe_cwnd)

    def _probe_rtt_cwnd(self) -> float:
        model = self.model
        return max(model.bdp_multiple(PROBE_RTT_CWND_GAIN, model.bw), model.min_pipe_cwnd)

    def _save_cwnd(self) -> None:
        if self.recovery_ends_at is None and self.state is not State.PROBE_RTT:
            self.prior_cwnd = self.congestion_window
        else:
            self.prior_cwnd = max(self.prior_cwnd, self.congestion_window)

    def _restore_cwnd(self) -> None:
        self.congestion_window = max(self.congestion_window, self.prior_cwnd)

    def _next_random(self) -> float:
        """Return a number from 0 to below 1; a linear congruential generator is random enough to desynchronise."""
        self._random = (self._random * 1664525 + 1013904223) & 0xFFFFFFFF
        return self._random / 0x100000000


def _inflight_at_loss(run: LostRun) -> float:
    """Return what was in flight when the losses crossed LOSS_THRESH, somewhere within a run (InflightAtLoss)."""
    inflight_prev = run.tx_in_flight - run.sent_size
    lost_prev = run.lost_since_sent - run.size
    lost_prefix = (LOSS_THRESH * inflight_prev - lost_prev) / (1 - LOSS_THRESH)
    return inflight_prev + lost_prefix
