"""BBR version 3 (draft-ietf-ccwg-bbr, after -06): its appendix of test cases, on a bottleneck in virtual time.

Unless a case says otherwise: 10 Mbit/s, 40 ms, a queue of one bandwidth-delay product, no end of data.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from qtunnel.recovery.congestion.base import LostRun
from qtunnel.recovery.congestion.bbr import Bbr
from qtunnel.recovery.congestion.bbr_state import GAINS, State
from qtunnel.recovery.loss_recovery import LossRecovery
from tests.unit.recovery.bottleneck import SIZE, Bottleneck, Path, Receiver, mbit
from tests.unit.recovery.congestion.samples import ack, loss

RATE = mbit(10)
BDP = RATE * 0.04
PROBE_STATES = (State.PROBE_BW_DOWN, State.PROBE_BW_CRUISE, State.PROBE_BW_REFILL, State.PROBE_BW_UP)


class Flow(Bottleneck):
    """A BBR flow that writes down which states it enters, and what it was like then."""

    def __init__(
        self, path: Path | None = None, *, app_rate: float | None = None, receiver: Receiver | None = None
    ) -> None:
        super().__init__("bbr", path or Path(rate=RATE, queue=BDP), app_rate=app_rate, receiver=receiver)
        assert isinstance(self.control, Bbr)
        self.bbr = self.control
        self.states: list[State] = [self.bbr.state]
        self.in_flight_on_entry: list[int] = [0]
        self.on_step = self._note

    def _note(self) -> None:
        if self.bbr.state is not self.states[-1]:
            self.states.append(self.bbr.state)
            self.in_flight_on_entry.append(self.recovery.bytes_in_flight)

    def run_to(self, state: State, limit: float = 20.0) -> None:
        """Go on until it is in a state."""
        self.run_until(lambda: self.bbr.state is state, limit, step=0.001)


def test_bbr_01_the_datagram_size_is_the_unit_and_follows_the_path() -> None:
    bbr = Bbr(1200)
    recovery = LossRecovery(congestion=bbr, max_ack_delay=0.025)
    assert bbr.model.min_pipe_cwnd == 4 * 1200
    recovery.set_max_datagram_size(1400)
    assert bbr.model.min_pipe_cwnd == 4 * 1400
    recovery.on_packets_sent(0, 5, 60, 1000.0, ack_eliciting=False, in_flight=False)
    recovery.on_ack_received([(0, 4)], 0.0, 1000.1)
    assert (recovery.bytes_in_flight, bbr.model.delivered) == (0, 0)


def test_bbr_02_the_rate_is_over_the_longer_of_the_send_and_the_ack_interval() -> None:
    bbr = Bbr(1000)
    recovery = LossRecovery(congestion=bbr, max_ack_delay=0.025, max_datagram_size=1000)
    for number in range(5):
        recovery.on_packets_sent(number, 1, 1000, 1000.0 + number / 100)
    recovery.on_ack_received([(0, 0)], 0.0, 1000.04)
    for number in range(5, 11):
        recovery.on_packets_sent(number, 1, 1000, 1000.0 + number / 100)
    # Packets 1 to 10 were sent over 100 ms and acknowledged within 60: 100 it is.
    recovery.on_ack_received([(0, 10)], 0.0, 1000.1001)
    assert bbr.model.delivery_rate == pytest.approx(10_000 / 0.1)
    # And 11 to 20 were sent in one go and acknowledged after 200 ms.
    recovery.on_packets_sent(11, 10, 1000, 1000.1001)
    recovery.on_ack_received([(0, 20)], 0.0, 1000.3001)
    assert bbr.model.delivery_rate == pytest.approx(10_000 / 0.2)


def test_bbr_02_an_interval_shorter_than_min_rtt_gives_no_sample() -> None:
    bbr = Bbr(1000)
    bbr.on_ack(ack(1000.0, 1000))
    sample = ack(1000.0, 9000)
    sample.has_rate, sample.interval, sample.sample_delivered, sample.min_rtt = True, 0.01, 9000, 0.04
    bbr.on_ack(sample)
    assert bbr.model.max_bw == 0


def test_bbr_03_the_rtt_is_that_of_the_newest_packet_acknowledged() -> None:
    bbr = Bbr(1200)
    recovery = LossRecovery(congestion=bbr, max_ack_delay=0.025)
    recovery.on_packets_sent(0, 1, 1200, 1000.0)
    recovery.on_packets_sent(1, 1, 1200, 1000.5)
    recovery.on_ack_received([(0, 1)], 0.0, 1000.6)
    assert bbr.model.min_rtt == pytest.approx(0.1)


def test_bbr_04_samples_limited_by_the_application_never_lower_the_bandwidth() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_CRUISE)
    before = flow.bbr.model.max_bw
    flow.limit(RATE / 20)
    flow.run(12.0)
    assert flow.bbr.model.max_bw == before


def test_bbr_04_samples_limited_by_the_application_may_raise_the_bandwidth() -> None:
    flow = Flow(app_rate=RATE / 10)
    flow.run(1.0)
    first = flow.bbr.model.max_bw
    flow.limit(RATE / 2)
    flow.run(1.0)
    assert flow.bbr.state is State.STARTUP
    assert flow.bbr.model.max_bw > 3 * first


def test_bbr_04_a_refill_limited_by_the_application_lowers_nothing() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_REFILL)
    before = flow.bbr.model.max_bw
    flow.limit(RATE / 50)
    flow.run_to(State.PROBE_BW_UP)
    assert flow.bbr.model.max_bw == before


def test_bbr_05_startup_ends_when_the_bandwidth_does_not_grow_any_more() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_until(lambda: flow.bbr.state is not State.STARTUP, 2.0, step=0.001)
    assert flow.states[1] is State.DRAIN
    assert flow.bbr.full_bw_count == 3
    assert flow.bbr.full_bw_now
    assert flow.bbr.full_bw_reached
    assert flow.bbr.model.max_bw == pytest.approx(RATE, rel=0.02)


def test_bbr_05_startup_ends_with_high_loss_though_the_application_limits_the_rate() -> None:
    flow = Flow(Path(rate=mbit(50), queue=10 * BDP), app_rate=mbit(20), receiver=Receiver(ack_every=2))
    flow.run(1.0)
    assert flow.bbr.state is State.STARTUP
    flow.path.loss = 0.15
    flow.run_until(lambda: flow.bbr.state is not State.STARTUP, 2.0, step=0.001)
    # Little is in flight, so Drain may be over at once.
    assert flow.states[1] in (State.DRAIN, *PROBE_STATES)
    assert flow.bbr.drain_start_round > 0
    assert flow.bbr.full_bw_now
    assert flow.bbr.full_bw_reached
    assert flow.bbr.full_bw_count < 3
    assert flow.bbr.model.inflight_longterm < inf


def test_bbr_05_startup_lasts_while_the_application_limits_the_rate_and_nothing_is_lost() -> None:
    flow = Flow(app_rate=RATE / 4)
    flow.run(4.0)
    assert set(flow.states) <= {State.STARTUP, State.PROBE_RTT}
    assert not flow.bbr.full_bw_reached


def test_bbr_06_drain_ends_when_no_more_than_a_bdp_is_in_flight() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.DRAIN)
    assert flow.bbr.pacing_gain == 0.5
    flow.run_until(lambda: flow.bbr.state is not State.DRAIN, 1.0, step=0.001)
    entered = flow.states.index(State.DRAIN) + 1
    assert flow.states[entered] in PROBE_STATES
    bdp = flow.bbr.model.max_bw * flow.bbr.model.min_rtt
    assert flow.in_flight_on_entry[entered] <= bdp + 4 * SIZE
    assert flow.bbr.model.round_count <= flow.bbr.drain_start_round + 3


def test_bbr_06_drain_ends_after_three_round_trips_in_any_case() -> None:
    bbr = Bbr(SIZE)
    bbr.full_bw_reached = True
    bbr._enter(State.DRAIN)
    bbr.model.min_rtt = 0.04
    for round_ in range(1, 5):
        assert bbr.state is State.DRAIN
        sample = ack(1000.0 + 0.04 * round_, SIZE, rtt=0.04, in_flight=10**6)
        sample.has_rate, sample.interval = True, 0.04
        sample.delivered, sample.prior_delivered = 2 * SIZE * round_, 2 * SIZE * (round_ - 1)
        sample.sample_delivered = sample.delivered - sample.prior_delivered
        bbr.on_ack(sample)
    assert bbr.state is State.PROBE_BW_DOWN


def test_bbr_07_the_gains_are_those_of_the_draft() -> None:
    assert GAINS == {
        State.STARTUP: (2.77, 2.0),
        State.DRAIN: (0.5, 2.0),
        State.PROBE_BW_DOWN: (0.9, 2.0),
        State.PROBE_BW_CRUISE: (1.0, 2.0),
        State.PROBE_BW_REFILL: (1.0, 2.0),
        State.PROBE_BW_UP: (1.25, 2.25),
        State.PROBE_RTT: (1.0, 0.5),
    }


def test_bbr_07_the_cycle_is_down_cruise_refill_up() -> None:
    flow = Flow()
    flow.run(4.9)
    cycle = [each for each in flow.states if each in PROBE_STATES]
    start = cycle.index(State.PROBE_BW_REFILL)
    assert cycle[start : start + 5] == [
        State.PROBE_BW_REFILL,
        State.PROBE_BW_UP,
        State.PROBE_BW_DOWN,
        State.PROBE_BW_CRUISE,
        State.PROBE_BW_REFILL,
    ]


def test_bbr_07_up_ends_when_the_bandwidth_does_not_grow_any_more() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.PROBE_BW_UP)
    flow.run_until(lambda: flow.bbr.state is not State.PROBE_BW_UP, 2.0, step=0.001)
    assert flow.bbr.full_bw_count == 3
    assert flow.lost == 0
    assert flow.bbr.state is State.PROBE_BW_DOWN


def test_bbr_07_up_ends_with_loss_though_the_application_limits_the_rate() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.PROBE_BW_UP)
    flow.limit(RATE / 2)
    flow.path.loss = 0.2
    flow.run_until(lambda: flow.bbr.state is not State.PROBE_BW_UP, 1.0, step=0.001)
    assert flow.bbr.state is State.PROBE_BW_DOWN
    assert flow.bbr.prev_probe_too_high


def test_bbr_07_up_lasts_while_the_application_limits_the_rate_and_nothing_is_lost() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.PROBE_BW_UP)
    flow.limit(RATE / 4)
    flow.run(1.5)
    assert flow.bbr.state is State.PROBE_BW_UP


def test_bbr_07_down_ends_when_there_is_headroom_and_no_queue() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.PROBE_BW_UP)
    flow.run_to(State.PROBE_BW_DOWN)
    assert flow.bbr.pacing_gain == 0.9
    flow.run_to(State.PROBE_BW_CRUISE)
    model = flow.bbr.model
    assert flow.in_flight_on_entry[-1] <= model.inflight_with_headroom()
    assert flow.in_flight_on_entry[-1] <= model.max_bw * model.min_rtt + 4 * SIZE


def test_bbr_07_down_ends_after_its_time_in_any_case() -> None:
    bbr = Bbr(SIZE)
    bbr.full_bw_reached = True
    bbr._start_probe_bw_down(1000.0)
    wait = bbr.bw_probe_wait
    assert 2.0 <= wait <= 3.0
    # The path's window is 60 packets, so the other bound, as many round trips, does not come first.
    bbr.model.min_rtt, bbr.congestion_window = 0.1, 60 * SIZE
    bbr.model.max_bw = 600 * SIZE
    bbr.model.bound_bw()
    assert not bbr._is_time_to_probe_bw(1000.0 + wait - 0.01)
    assert bbr._is_time_to_probe_bw(1000.0 + wait + 0.01)
    assert bbr.state is State.PROBE_BW_REFILL


def test_bbr_07_losses_while_cruising_take_the_short_term_bounds_down() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_CRUISE)
    flow.path.loss = 0.1
    flow.run(0.2)
    assert flow.bbr.state is State.PROBE_BW_CRUISE
    model = flow.bbr.model
    assert 0.5 * RATE < model.bw_shortterm < RATE
    assert model.inflight_shortterm < inf


def test_bbr_07_loss_in_up_takes_the_long_term_volume_down_and_ends_it() -> None:
    flow = Flow()
    flow.run_until(lambda: flow.bbr.model.inflight_longterm < inf, 10.0)
    flow.run_to(State.PROBE_BW_UP)
    before = flow.bbr.model.inflight_longterm
    flow.path.queue = BDP / 10
    flow.run_until(lambda: flow.bbr.state is not State.PROBE_BW_UP, 1.0, step=0.001)
    assert flow.bbr.state is State.PROBE_BW_DOWN
    assert flow.bbr.prev_probe_too_high
    assert flow.bbr.model.inflight_longterm < before


def test_bbr_07_after_a_probe_that_went_too_high_the_next_is_a_cautious_one() -> None:
    flow = Flow()
    flow.run_until(lambda: flow.bbr.model.inflight_longterm < inf, 10.0)
    flow.bbr.prev_probe_too_high = True
    flow.run_to(State.PROBE_BW_UP)
    flow.run_to(State.PROBE_BW_DOWN)
    assert flow.bbr.prev_probe_precautionary
    # It went well, so another follows at once.
    flow.run_to(State.PROBE_BW_REFILL, 0.5)


def test_bbr_07_ten_times_the_bandwidth_is_found_within_a_few_round_trips_of_the_probe() -> None:
    flow = Flow()
    flow.run(6.0)
    flow.path.rate, flow.path.queue = 10 * RATE, 10 * BDP
    flow.run_to(State.PROBE_BW_UP)
    started = flow.bbr.model.round_count
    flow.run_until(lambda: flow.bbr.model.max_bw > 9.8 * RATE, 3.0)
    assert flow.bbr.model.round_count - started < 25


def test_bbr_07_the_long_term_volume_grows_faster_each_round_trip_of_a_probe() -> None:
    flow = Flow()
    flow.run(6.0)
    flow.path.rate, flow.path.queue = 10 * RATE, 10 * BDP
    flow.bbr.prev_probe_too_high = False
    flow.run_to(State.PROBE_BW_UP)
    volumes = []
    for rounds in range(3, 9):
        flow.run_until(lambda least=rounds: flow.bbr.bw_probe_up_rounds >= least, 1.0, step=0.001)  # type: ignore[misc]
        volumes.append(flow.bbr.model.inflight_longterm)
    growth = [later - earlier for earlier, later in pairwise(volumes)]
    assert growth[-1] >= 8 * growth[0] > 0
    assert growth == sorted(growth)


def test_bbr_07_a_tenth_of_the_bandwidth_is_accepted() -> None:
    flow = Flow(Path(rate=10 * RATE, queue=10 * BDP))
    flow.run(3.0)
    flow.path.rate, flow.path.queue = RATE, BDP
    flow.run(1.0)
    assert flow.bbr.model.bw_shortterm < 2 * RATE
    flow.run_until(lambda: flow.bbr.model.max_bw < 1.02 * RATE, 20.0)
    assert flow.utilisation(5.0) > 0.85


def test_bbr_07_a_policer_is_lived_with() -> None:
    flow = Flow(Path(rate=RATE, policer_burst=200_000))
    flow.run(10.0)
    sent, lost = flow.sent, flow.lost
    utilisation = flow.utilisation(10.0)
    assert flow.bbr.model.inflight_longterm < inf
    assert utilisation > 0.8
    assert (flow.lost - lost) / (flow.sent - sent) < 0.1


def test_bbr_08_after_five_seconds_half_a_bdp_for_200_ms_and_a_round_trip() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_RTT)
    start = flow.now
    assert start - 1000.0 == pytest.approx(5.1, abs=0.2)
    assert flow.bbr.cwnd_gain == 0.5
    flow.run(0.1)
    assert flow.recovery.bytes_in_flight <= max(0.5 * flow.bbr.model.max_bw * flow.bbr.model.min_rtt, 4 * SIZE)
    flow.run_until(lambda: flow.bbr.state is not State.PROBE_RTT, 1.0, step=0.001)
    assert flow.bbr.state in PROBE_STATES
    assert 0.2 <= flow.now - start <= 0.4
    assert flow.utilisation(1.0) > 0.9


def test_bbr_08_in_startup_it_leads_back_to_startup() -> None:
    flow = Flow(app_rate=RATE / 4)
    flow.run_to(State.PROBE_RTT)
    assert not flow.bbr.full_bw_reached
    flow.run_until(lambda: flow.bbr.state is not State.PROBE_RTT, 1.0)
    assert flow.bbr.state is State.STARTUP


def test_bbr_08_min_rtt_is_of_the_last_ten_seconds() -> None:
    flow = Flow()
    flow.run(3.0)
    assert flow.bbr.model.min_rtt == pytest.approx(0.041, abs=0.001)
    flow.path.rtt = 0.06
    flow.run(6.0)
    assert flow.bbr.model.min_rtt < 0.045
    flow.run(10.0)
    assert flow.bbr.model.min_rtt == pytest.approx(0.061, abs=0.002)


def test_bbr_09_silence_stands_for_a_probe_of_the_rtt_and_sending_goes_on_at_the_bandwidth() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_CRUISE)
    flow.limit(1e-3)
    flow.run(6.0)
    assert flow.recovery.bytes_in_flight == 0
    flow.limit(None)
    assert flow.bbr.idle_restart
    assert flow.bbr.pacing_rate == pytest.approx(0.99 * flow.bbr.model.bw)
    flow.run(0.5)
    assert State.PROBE_RTT not in flow.states


def test_bbr_09_silence_during_a_probe_of_the_rtt_completes_it() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_RTT)
    flow.run(0.15)
    flow.limit(1e-3)
    flow.run(1.0)
    assert flow.bbr.state is State.PROBE_RTT
    flow.bbr.on_idle_restart(flow.now)
    assert flow.bbr.state is State.PROBE_BW_CRUISE


def test_bbr_10_the_first_pacing_rate_is_by_the_initial_window() -> None:
    bbr = Bbr(1200)
    assert bbr.pacing_rate == pytest.approx(2.77 * 12_000 / 0.001)
    bbr.on_ack(ack(1000.0, 1200, rtt=0.05))
    assert bbr.pacing_rate == pytest.approx(2.77 * 12_000 / 0.05)


def test_bbr_10_cruising_paces_one_percent_below_the_bandwidth() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_CRUISE)
    flow.run(0.2)
    assert flow.bbr.pacing_rate == pytest.approx(0.99 * flow.bbr.model.bw)


@pytest.mark.parametrize(("rate", "quantum"), [(1e3, 2 * SIZE), (5e6, 5000), (1e9, 65536)])
def test_bbr_11_a_quantum_is_a_millisecond_between_two_datagrams_and_64_kilobytes(
    rate: float, quantum: int
) -> None:
    bbr = Bbr(SIZE)
    bbr.model.set_send_quantum(rate)
    assert bbr.model.send_quantum == quantum


def test_bbr_12_four_datagrams_are_the_floor_on_a_path_that_holds_less_than_one() -> None:
    flow = Flow(Path(rate=mbit(0.5), rtt=0.002, queue=20 * SIZE), receiver=Receiver(ack_every=2))
    flow.run(8.0)
    assert flow.bbr.state in (*PROBE_STATES, State.PROBE_RTT)
    assert flow.bbr.congestion_window >= 4 * SIZE
    assert flow.utilisation(4.0) > 0.9


def test_bbr_12_startup_finds_the_bandwidth_though_acks_come_in_lumps() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP, aggregation=0.03))
    flow.run_until(lambda: flow.bbr.state is not State.STARTUP, 5.0)
    assert flow.bbr.model.extra_acked > 0
    # A lump more or less in the interval makes the sample too large; too small it must not be.
    assert RATE <= flow.bbr.model.max_bw < 1.25 * RATE
    assert flow.utilisation(2.0) > 0.95


def test_bbr_12_lumps_of_acks_are_bridged_while_cruising() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.PROBE_BW_CRUISE)
    flow.path.aggregation = 0.05
    utilisation = flow.utilisation(4.0)
    assert flow.bbr.model.extra_acked > 0.3 * BDP
    assert flow.bbr.max_inflight >= 2 * flow.bbr.model.bw * flow.bbr.model.min_rtt + flow.bbr.model.extra_acked - 1
    assert utilisation > 0.9


def test_bbr_13_a_congestion_mark_counts_as_a_loss() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_CRUISE)
    flow.bbr.on_ecn_ce(flow.now, starts_recovery=True)
    assert flow.bbr.model.is_loss_in_round
    flow.run(0.2)
    assert flow.bbr.model.bw_shortterm < inf


def test_bbr_13_a_congestion_mark_ends_a_probe() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.PROBE_BW_UP)
    flow.bbr.on_ecn_ce(flow.now, starts_recovery=True)
    assert flow.bbr.state is State.PROBE_BW_DOWN
    assert flow.bbr.model.inflight_longterm < inf


def test_bbr_14_losses_that_were_none_are_undone_while_cruising() -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_CRUISE)
    model, window = flow.bbr.model, flow.bbr.congestion_window
    flow.bbr.on_loss(loss(flow.now, SIZE, delivered=model.delivered))
    flow.bbr.model.bw_shortterm, flow.bbr.model.inflight_shortterm = RATE / 2, BDP / 2
    flow.bbr.congestion_window = int(BDP / 2)
    flow.bbr.on_spurious_loss(flow.now)
    assert model.bw_shortterm == model.inflight_shortterm == inf
    assert flow.bbr.congestion_window >= window
    assert not model.is_loss_in_round


@pytest.mark.parametrize(
    ("undone", "expected"),
    [(State.STARTUP, State.STARTUP), (State.PROBE_BW_UP, State.PROBE_BW_REFILL)],
)
def test_bbr_14_the_state_that_a_spurious_loss_ended_is_taken_up_again(undone: State, expected: State) -> None:
    flow = Flow()
    flow.run_to(State.PROBE_BW_CRUISE)
    flow.bbr.on_loss(loss(flow.now, SIZE, delivered=flow.bbr.model.delivered))
    flow.bbr.undo_state = undone
    flow.bbr.on_spurious_loss(flow.now)
    assert flow.bbr.state is expected
    assert flow.bbr.full_bw_reached is (expected is not State.STARTUP)
    assert flow.bbr.undo_state is None


def test_bbr_14_a_probe_ended_by_a_loss_that_was_none_is_begun_again() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP))
    flow.run_to(State.PROBE_BW_UP)
    before = flow.bbr.model.inflight_longterm
    in_flight = flow.recovery.bytes_in_flight
    run = LostRun(
        size=in_flight // 10,
        sent_size=in_flight // 10,
        tx_in_flight=in_flight,
        lost_since_sent=in_flight // 10,
        is_app_limited=False,
    )
    flow.bbr.on_loss(loss(flow.now, run.size, delivered=flow.bbr.model.delivered, runs=[run]))
    assert flow.bbr.state is State.PROBE_BW_DOWN
    assert flow.bbr.model.inflight_longterm < before
    flow.bbr.on_spurious_loss(flow.now)
    assert flow.bbr.state is State.PROBE_BW_REFILL
    assert flow.bbr.model.inflight_longterm == before


def test_bbr_14_reordering_costs_no_bandwidth() -> None:
    flow = Flow(Path(rate=RATE, queue=10 * BDP, reorder=0.02, reorder_delay=0.006))
    flow.run(2.0)
    assert flow.utilisation(5.0) > 0.9
    assert flow.spurious > 0
    assert flow.dropped == 0


def test_bbr_15_a_lost_probe_is_no_loss() -> None:
    bbr = Bbr(1200)
    recovery = LossRecovery(congestion=bbr, max_ack_delay=0.025)
    recovery.on_packets_sent(0, 1, 1450, 1000.0, is_mtu_probe=True)
    recovery.on_packets_sent(1, 4, 1200, 1000.0)
    assert recovery.on_ack_received([(1, 4)], 0.0, 1000.1).lost_probes == [0]
    assert not bbr.model.is_loss_in_round
    recovery.on_packets_sent(5, 4, 1200, 1000.1)
    recovery.on_ack_received([(1, 8)], 0.0, 1000.2)
    assert recovery._sample.sample_lost == 0


def test_bbr_15_a_probe_that_arrives_alone_gives_no_rate() -> None:
    bbr = Bbr(1200)
    recovery = LossRecovery(congestion=bbr, max_ack_delay=0.025)
    recovery.on_packets_sent(0, 1, 1450, 1000.0, is_mtu_probe=True)
    recovery.on_ack_received([(0, 0)], 0.0, 1000.1)
    assert bbr.model.max_bw == 0
    assert bbr.model.delivered == 1450
