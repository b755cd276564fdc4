"""RFC 9002: loss detection and congestion control, on qtunnel.recovery."""

from __future__ import annotations

from math import inf

import pytest

from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.congestion.base import initial_window, minimum_window
from qtunnel.recovery.loss_recovery import LossRecovery
from tests.unit.recovery.bottleneck import Bottleneck, Path

SIZE = 1200
NOW = 1000.0
RTT = 0.1
MAX_ACK_DELAY = 0.025


def recovery(congestion: str = "reno") -> LossRecovery:
    return LossRecovery(congestion=make_congestion_control(congestion, SIZE), max_ack_delay=MAX_ACK_DELAY)


def measured(congestion: str = "reno") -> LossRecovery:
    """Return one with packet 0 acknowledged after 100 ms, at NOW; nothing in flight."""
    each = recovery(congestion)
    each.on_packets_sent(0, 1, SIZE, NOW - RTT)
    each.on_ack_received([(0, 0)], 0.0, NOW)
    return each


def timer(each: LossRecovery) -> float:
    when = each.get_timer()
    assert when is not None
    return when


# RTT


def test_rec_01_an_rtt_sample_needs_the_largest_acknowledged_to_be_new() -> None:
    each = measured()
    each.on_packets_sent(1, 4, SIZE, NOW)
    assert each.on_ack_received([(3, 3), (0, 0)], 0.0, NOW + 0.2).rtt_updated
    result = each.on_ack_received([(2, 3), (0, 0)], 0.0, NOW + 0.9)
    assert result.newly_acked == 1
    assert not result.rtt_updated
    assert each.latest_rtt == pytest.approx(0.2)


def test_rec_01_an_rtt_sample_needs_something_ack_eliciting() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 60, NOW, ack_eliciting=False, in_flight=False)
    result = each.on_ack_received([(0, 1)], 0.0, NOW + 5.0)
    assert (result.newly_acked, result.rtt_updated) == (1, False)
    each.on_packets_sent(2, 1, SIZE, NOW + 5.0)
    each.on_packets_sent(3, 1, 60, NOW + 5.1, ack_eliciting=False, in_flight=False)
    assert each.on_ack_received([(0, 3)], 0.0, NOW + 5.3).rtt_updated
    assert each.latest_rtt == pytest.approx(0.2)


def test_rec_01_the_peers_delay_is_taken_off_up_to_its_maximum() -> None:
    honest, liar = measured(), measured()
    for each, claimed in ((honest, MAX_ACK_DELAY), (liar, 3.0)):
        each.on_packets_sent(1, 1, SIZE, NOW)
        each.on_ack_received([(0, 1)], claimed, NOW + 0.2)
    assert liar.smoothed_rtt == honest.smoothed_rtt == pytest.approx(0.875 * 0.1 + 0.125 * 0.175)


def test_rec_01_the_peers_delay_never_takes_a_sample_below_min_rtt() -> None:
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW)
    each.on_ack_received([(0, 1)], 0.02, NOW + 0.11)
    assert each.smoothed_rtt == pytest.approx(0.875 * 0.1 + 0.125 * 0.11)
    assert each.min_rtt == pytest.approx(0.1)


def test_rec_01_smoothed_rtt_and_rttvar_are_moving_averages() -> None:
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW)
    each.on_ack_received([(0, 1)], 0.0, NOW + 0.2)
    assert each.rttvar == pytest.approx(0.75 * 0.05 + 0.25 * 0.1)
    assert each.smoothed_rtt == pytest.approx(0.1125)


# Loss


def test_rec_03_a_packet_is_lost_when_one_three_later_is_acknowledged_and_not_before() -> None:
    each = measured()
    each.on_packets_sent(1, 5, SIZE, NOW)
    assert each.on_ack_received([(3, 3), (0, 0)], 0.0, NOW + RTT).lost == 0
    assert each.on_ack_received([(3, 4), (0, 0)], 0.0, NOW + RTT).lost == 1


def test_rec_03_one_spaces_acks_make_nothing_lost_in_another() -> None:
    one, other = measured(), measured()
    for each in (one, other):
        each.on_packets_sent(1, 9, SIZE, NOW)
    one.on_ack_received([(9, 9), (0, 0)], 0.0, NOW + RTT)
    assert one.bytes_in_flight == 2 * SIZE
    assert other.bytes_in_flight == 9 * SIZE


def test_rec_04_a_packet_is_lost_nine_eighths_of_an_rtt_after_it_was_sent() -> None:
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + RTT)
    assert timer(each) == pytest.approx(NOW + 1.125 * RTT)
    assert each.on_timeout(NOW + 1.12 * RTT).lost == 0
    assert each.on_timeout(timer(each)).lost == 1


def test_rec_04_the_larger_of_smoothed_and_latest_rtt_counts() -> None:
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 0.3)
    assert each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 0.3).lost == 0
    assert timer(each) == pytest.approx(NOW + 1.125 * 0.3)
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 0.05)
    assert timer(each) == pytest.approx(NOW + 1.125 * (0.875 * 0.1 + 0.125 * 0.05))


def test_rec_04_a_millisecond_is_the_least() -> None:
    each = recovery()
    each.on_packets_sent(0, 1, SIZE, NOW)
    each.on_ack_received([(0, 0)], 0.0, NOW + 0.0002)
    each.on_packets_sent(1, 2, SIZE, NOW + 1.0)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 1.0002)
    assert timer(each) == pytest.approx(NOW + 1.001)


# Probe timeout


def test_rec_05_the_probe_timeout_is_made_of_rtt_deviation_and_the_peers_delay() -> None:
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW)
    assert timer(each) == pytest.approx(NOW + 0.1 + 4 * 0.05 + MAX_ACK_DELAY)


def test_rec_05_a_path_that_never_varies_has_a_millisecond_for_its_deviation() -> None:
    each = measured()
    for number in range(1, 40):
        each.on_packets_sent(number, 1, SIZE, NOW + number)
        each.on_ack_received([(0, number)], 0.0, NOW + number + RTT)
    assert 4 * each.rttvar < 0.001
    assert each.pto() == pytest.approx(RTT + 0.001 + MAX_ACK_DELAY)


def test_rec_05_the_probe_timeout_doubles_and_an_ack_ends_that() -> None:
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW)
    period = each.pto()
    for factor in (1, 2, 4, 8):
        assert timer(each) == pytest.approx(NOW + factor * period)
        assert each.on_timeout(timer(each)).send_probe
    each.on_packets_sent(2, 1, SIZE, NOW + 9.0)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 9.1)
    assert each.pto_count == 0


def test_rec_05_a_loss_timer_goes_first_and_alone() -> None:
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + RTT)
    assert timer(each) < NOW + each.pto()
    result = each.on_timeout(timer(each))
    assert (result.lost, result.send_probe, each.pto_count) == (1, False, 0)


def test_rec_05_nothing_ack_eliciting_out_arms_nothing() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 60, NOW, ack_eliciting=False, in_flight=False)
    assert each.get_timer() is None


def test_rec_06_without_a_sample_the_rtt_is_333_milliseconds() -> None:
    each = recovery()
    assert each.smoothed_rtt == 0.333
    each.on_packets_sent(0, 1, SIZE, NOW)
    assert timer(each) == pytest.approx(NOW + 0.333 + 4 * 0.1665 + MAX_ACK_DELAY)


def test_rec_07_an_expired_probe_timeout_loses_nothing_and_asks_for_a_probe() -> None:
    each = measured()
    window = each.congestion.congestion_window
    each.on_packets_sent(1, 3, SIZE, NOW)
    result = each.on_timeout(timer(each))
    assert (result.lost, result.send_probe) == (0, True)
    assert each.bytes_in_flight == 3 * SIZE
    assert each.congestion.congestion_window == window


# Congestion control


@pytest.mark.parametrize("congestion", ["cubic", "reno", "bbr"])
def test_rec_08_no_more_than_the_window_is_in_flight(congestion: str) -> None:
    bottleneck = Bottleneck(congestion, Path(rate=1_250_000, queue=50_000, loss=0.01))
    sends = []
    recovery = bottleneck.recovery
    transmit = bottleneck._transmit

    def watched(count: int) -> None:
        is_probe = recovery.pto_count > 0
        transmit(count)
        sends.append(is_probe or recovery.bytes_in_flight <= recovery.congestion.congestion_window)

    bottleneck._transmit = watched  # type: ignore[method-assign]  # to see every send
    bottleneck.run(4.0)
    assert len(sends) > 500
    assert all(sends)


@pytest.mark.parametrize("size", [1200, 1472, 9000])
@pytest.mark.parametrize("congestion", ["cubic", "reno", "bbr"])
def test_rec_09_initial_and_minimum_window_follow_the_datagram_size(congestion: str, size: int) -> None:
    expected = {1200: 12000, 1472: 14720, 9000: 18000}[size]
    assert initial_window(size) == expected
    assert make_congestion_control(congestion, size).congestion_window == expected
    assert minimum_window(size) == 2 * size


def test_rec_10_slow_start_ends_with_a_loss_and_a_round_trip_has_one_reduction() -> None:
    each = measured()
    each.on_packets_sent(1, 10, SIZE, NOW)
    each.on_ack_received([(0, 10)], 0.0, NOW + RTT)
    window = each.congestion.congestion_window
    assert window == 24000
    each.on_packets_sent(11, 20, SIZE, NOW + RTT)
    each.on_ack_received([(15, 15), (0, 10)], 0.0, NOW + 2 * RTT)
    assert each.congestion.congestion_window == each.congestion.ssthresh == window / 2
    # More of the same flight is lost, and what was sent before the reduction is acknowledged.
    result = each.on_ack_received([(25, 30), (15, 15), (0, 10)], 0.0, NOW + 2 * RTT)
    assert result.lost > 0
    assert each.congestion.congestion_window == window / 2
    each.on_packets_sent(31, 6, SIZE, NOW + 2 * RTT)
    each.on_ack_received([(36, 36), (25, 30), (15, 15), (0, 10)], 0.0, NOW + 3 * RTT)
    assert each.congestion.congestion_window < window / 2


def test_rec_10_a_congestion_mark_reduces_once_a_round_trip_too() -> None:
    each = measured()
    each.on_packets_sent(1, 10, SIZE, NOW)
    each.on_ack_received([(0, 5)], 0.0, NOW + RTT, ecn_ce=1)
    window = each.congestion.congestion_window
    assert window == 6000
    each.on_ack_received([(0, 10)], 0.0, NOW + RTT, ecn_ce=3)
    assert each.congestion.congestion_window == window
    each.on_packets_sent(11, 5, SIZE, NOW + RTT)
    each.on_ack_received([(0, 15)], 0.0, NOW + 2 * RTT, ecn_ce=4)
    assert each.congestion.congestion_window == window / 2


def test_rec_10_avoidance_adds_one_datagram_for_each_window() -> None:
    each = measured()
    each.congestion.on_ecn_ce(NOW, starts_recovery=True)
    number, now = 1, NOW
    window = each.congestion.congestion_window
    for _ in range(5):
        count = each.can_send() // SIZE
        each.on_packets_sent(number, count, SIZE, now)
        now += RTT
        each.on_ack_received([(0, number + count - 1)], 0.0, now)
        number += count
        assert 0 < each.congestion.congestion_window - window <= SIZE
        window = each.congestion.congestion_window


def test_rec_11_a_probe_is_sent_with_a_full_window_and_counts() -> None:
    each = measured()
    each.on_packets_sent(1, each.can_send() // SIZE, SIZE, NOW)
    assert each.can_send() < SIZE
    when = timer(each)
    assert each.on_timeout(when).send_probe
    before = each.bytes_in_flight
    each.on_packets_sent(each.largest_sent + 1, 1, SIZE, when)
    assert each.bytes_in_flight == before + SIZE
    assert each.can_send() < 0


def table_1(congestion: str) -> LossRecovery:
    """Return the sender of RFC 9002 §7.6.3 table 1 when the ACK of packet 9 has come."""
    each = recovery(congestion)
    each.on_packets_sent(1, 1, SIZE, NOW)
    for number in range(2, 8):
        if number == 3:
            each.on_ack_received([(1, 1)], 0.0, NOW + 1.2)
        each.on_packets_sent(number, 1, SIZE, NOW + number - 1)
    # The table takes the period of the probe timeout to be 2 seconds, which these are after the last ACK.
    each.rtt.smoothed_rtt, each.rtt.rttvar, each.max_ack_delay = 0.8, 0.225, 0.0
    for number, when in ((8, 8.0), (9, 12.0)):
        assert each.on_timeout(NOW + when).send_probe
        each.on_packets_sent(number, 1, SIZE, NOW + when)
    each.on_ack_received([(9, 9), (1, 1)], 0.0, NOW + 12.2)
    assert each.pto() == pytest.approx(2.0)
    return each


@pytest.mark.parametrize("congestion", ["cubic", "reno", "bbr"])
def test_rec_12_table_1_is_persistent_congestion_and_leaves_the_minimum_window(congestion: str) -> None:
    each = table_1(congestion)
    assert each.bytes_in_flight == 0
    # The minimum, and the packet acknowledged meanwhile; BBR goes on from four datagrams.
    assert each.congestion.congestion_window == (4 if congestion == "bbr" else 3) * SIZE


def test_rec_12_the_duration_has_to_exceed_three_probe_timeouts() -> None:
    each = recovery()
    each.on_packets_sent(0, 1, SIZE, NOW)
    each.on_ack_received([(0, 0)], 0.0, NOW + RTT)
    duration = 3 * each.pto()
    for number, when in ((1, 1.0), (2, 1.0 + duration - 0.01), (3, 2.0 + duration)):
        each.on_packets_sent(number, 1, SIZE, NOW + when)
    each.on_packets_sent(4, 3, SIZE, NOW + 2.1 + duration)
    each.on_ack_received([(3, 6), (0, 0)], 0.0, NOW + 2.2 + duration)
    assert each.congestion.congestion_window == 6000


def test_rec_02_min_rtt_starts_over_after_persistent_congestion() -> None:
    each = table_1("reno")
    assert each.latest_rtt == pytest.approx(0.2)
    each = recovery()
    each.on_packets_sent(0, 1, SIZE, NOW)
    each.on_ack_received([(0, 0)], 0.0, NOW + 0.01)
    each.on_packets_sent(1, 1, SIZE, NOW + 1.0)
    each.on_packets_sent(2, 1, SIZE, NOW + 5.0)
    each.on_packets_sent(3, 3, SIZE, NOW + 6.0)
    each.on_ack_received([(3, 5), (0, 0)], 0.0, NOW + 6.3)
    assert each.min_rtt == pytest.approx(0.3)


@pytest.mark.parametrize("congestion", ["cubic", "reno", "bbr"])
def test_rec_13_bursts_are_limited_and_what_only_acknowledges_is_not_paced(congestion: str) -> None:
    each = measured(congestion)
    rate = each.congestion.pacing_rate
    assert rate is not None
    assert rate < 3 * each.congestion.congestion_window / RTT
    budget = each.pacer.budget(NOW + 60.0)
    assert budget <= max(rate * 0.002, 2 * SIZE)
    each.on_packets_sent(1, 50, 60, NOW + 60.0, ack_eliciting=False, in_flight=False)
    assert each.pacer.budget(NOW + 60.0) == budget


@pytest.mark.parametrize("congestion", ["cubic", "reno"])
def test_rec_14_a_window_that_is_not_used_does_not_grow(congestion: str) -> None:
    each = measured(congestion)
    now, window = NOW, inf
    for number in range(1, 200):
        each.on_packets_sent(number, 1, SIZE, now)
        now += RTT
        each.on_ack_received([(0, number)], 0.0, now)
        if number == 5:
            window = each.congestion.congestion_window
    assert each.congestion.congestion_window == window


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
def test_rec_14_idle_then_a_burst_finds_the_window_no_larger(congestion: str) -> None:
    bottleneck = Bottleneck(congestion, Path(rate=1_250_000, queue=50_000))
    bottleneck.run(5.0)
    window = bottleneck.control.congestion_window
    bottleneck.limit(10_000)
    bottleneck.run(10.0)
    assert bottleneck.control.congestion_window <= 1.2 * window


def test_rec_15_the_loss_of_a_probe_changes_neither_window_nor_ssthresh() -> None:
    each = measured()
    before = each.congestion.congestion_window, each.congestion.ssthresh
    each.on_packets_sent(1, 1, 1450, NOW, is_mtu_probe=True)
    each.on_packets_sent(2, 3, 60, NOW, ack_eliciting=False, in_flight=False)
    assert each.on_ack_received([(2, 4), (0, 0)], 0.0, NOW + RTT).lost_probes == [1]
    assert (each.congestion.congestion_window, each.congestion.ssthresh) == before


def test_rec_15_a_probes_loss_begins_no_recovery_period_that_hides_a_real_one() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 1450, NOW, is_mtu_probe=True)
    each.on_packets_sent(2, 8, SIZE, NOW)
    assert each.on_ack_received([(4, 4), (0, 0)], 0.0, NOW + RTT).lost_probes == [1]
    window = each.congestion.congestion_window
    assert each.on_ack_received([(4, 5), (0, 0)], 0.0, NOW + RTT).lost == 1
    assert each.congestion.congestion_window == window // 2


def test_rec_15_a_lost_probe_is_no_end_of_persistent_congestion() -> None:
    each = measured()
    window = each.congestion.congestion_window
    each.on_packets_sent(1, 1, 1450, NOW + 1.0, is_mtu_probe=True)
    each.on_packets_sent(2, 1, SIZE, NOW + 9.0)
    each.on_packets_sent(3, 1, SIZE, NOW + 9.5)
    result = each.on_ack_received([(3, 3), (0, 0)], 0.0, NOW + 9.6)
    assert (result.lost_probes, result.lost) == ([1], 1)
    assert each.congestion.congestion_window == window // 2


def test_rec_15_lost_probes_are_no_persistent_congestion() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 1450, NOW + 1.0, is_mtu_probe=True)
    each.on_packets_sent(2, 1, 1450, NOW + 9.0, is_mtu_probe=True)
    each.on_packets_sent(3, 4, SIZE, NOW + 9.5)
    window = each.congestion.congestion_window
    result = each.on_ack_received([(3, 6), (0, 0)], 0.0, NOW + 9.6)
    assert result.lost_probes == [1, 2]
    assert each.congestion.congestion_window >= window


def test_rec_16_when_keys_go_their_packets_and_timer_go() -> None:
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + RTT)
    assert each.get_timer() is not None
    each.discard_everything()
    assert each.bytes_in_flight == 0
    assert each.get_timer() is None
