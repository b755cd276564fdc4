"""qtunnel.recovery.loss_recovery: what RFC 9002 does not have, and what is between the parts.

What it does have is in tests/conformance/test_rfc9002.py, and checked in every order in
test_loss_recovery_model.py.
"""

from __future__ import annotations

import pytest

from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery
from qtunnel.recovery.results import AckResult

SIZE = 1200
RTT = 0.1
NOW = 1000.0


def recovery(congestion: str = "cubic", size: int = SIZE) -> LossRecovery:
    return LossRecovery(
        congestion=make_congestion_control(congestion, size), max_ack_delay=0.025, max_datagram_size=size
    )


def measured(congestion: str = "cubic", size: int = SIZE) -> LossRecovery:
    """Return one that has an RTT of 100 ms, packet 0 acknowledged, and nothing in flight at NOW + RTT."""
    each = recovery(congestion, size)
    each.on_packets_sent(0, 1, size, NOW)
    each.on_ack_received([(0, 0)], 0.0, NOW + RTT)
    return each


def test_sending_takes_from_the_window_and_from_the_pacer() -> None:
    each = measured()
    window, credit = each.can_send(), each.pacer.budget(NOW + RTT)
    each.on_packets_sent(1, 3, SIZE, NOW + RTT)
    assert each.can_send() == window - 3 * SIZE
    assert each.pacer.budget(NOW + RTT) == credit - 3 * SIZE


def test_what_only_acknowledges_takes_nothing() -> None:
    each = measured()
    window, credit = each.can_send(), each.pacer.budget(NOW + RTT)
    each.on_packets_sent(1, 1, 60, NOW + RTT, ack_eliciting=False, in_flight=False)
    assert (each.can_send(), each.pacer.budget(NOW + RTT)) == (window, credit)
    assert each.get_timer() is None


def test_a_second_ack_of_the_same_is_no_news() -> None:
    each = measured()
    each.on_packets_sent(1, 3, SIZE, NOW + RTT)
    each.on_ack_received([(0, 3)], 0.0, NOW + 2 * RTT)
    before = each.smoothed_rtt, each.congestion.congestion_window
    assert each.on_ack_received([(0, 3)], 0.0, NOW + 9 * RTT) == AckResult()
    assert (each.smoothed_rtt, each.congestion.congestion_window) == before


def test_ranges_known_already_are_skipped_and_new_ones_between_are_found() -> None:
    each = measured("none")
    each.on_packets_sent(1, 60, SIZE, NOW + RTT)
    each.packet_threshold = 64
    each.on_ack_received([(30, 40), (10, 20), (0, 5)], 0.0, NOW + RTT)
    result = each.on_ack_received([(45, 50), (22, 40), (10, 20), (0, 5)], 0.0, NOW + RTT)
    assert result.newly_acked == 6 + 8


def test_a_payload_comes_back_with_the_ack_of_its_packet() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 200, NOW + RTT, payload="stream 4")
    assert each.on_ack_received([(0, 1)], 0.0, NOW + 2 * RTT).acked_payloads == ["stream 4"]


def test_a_payload_comes_back_with_the_loss_of_its_packet_and_not_again() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 200, NOW + RTT, payload="stream 4")
    each.on_packets_sent(2, 4, SIZE, NOW + RTT)
    assert each.on_ack_received([(2, 5), (0, 0)], 0.0, NOW + 2 * RTT).lost_payloads == ["stream 4"]
    result = each.on_ack_received([(0, 5)], 0.0, NOW + 2.1 * RTT)
    assert (result.spurious, result.acked_payloads) == (1, [])


def test_a_payload_of_many_packets_is_refused() -> None:
    with pytest.raises(AssertionError):
        recovery().on_packets_sent(0, 2, SIZE, NOW, payload="whose?")


def test_a_probe_timeout_hands_out_what_to_send_again() -> None:
    each = measured()
    for number in (1, 2, 3):
        each.on_packets_sent(number, 1, 200, NOW + RTT, payload=f"stream {number}")
    timer = each.get_timer()
    assert timer is not None
    result = each.on_timeout(timer)
    assert result.send_probe
    assert result.probe_payloads == ["stream 1", "stream 2"]
    assert result.lost == 0
    # The copies are what counts now.
    assert each.on_ack_received([(0, 3)], 0.0, timer + RTT).acked_payloads == ["stream 3"]


def test_a_timer_judged_too_early_does_nothing() -> None:
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW + RTT)
    timer = each.get_timer()
    assert timer is not None
    assert not each.on_timeout(timer - 0.001).send_probe
    assert each.pto_count == 0


def test_a_lost_probe_is_told_by_its_number_and_touches_nothing() -> None:
    each = measured()
    window = each.congestion.congestion_window
    each.on_packets_sent(1, 1, 1450, NOW + RTT, is_mtu_probe=True)
    each.on_packets_sent(2, 3, 60, NOW + RTT)
    result = each.on_ack_received([(2, 4), (0, 0)], 0.0, NOW + 2 * RTT)
    assert (result.lost_probes, result.lost, result.lost_bytes) == ([1], 0, 0)
    assert each.bytes_in_flight == 0
    assert each.congestion.congestion_window >= window


def test_a_probe_that_comes_late_is_still_a_proof() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 1450, NOW + RTT, is_mtu_probe=True)
    each.on_packets_sent(2, 3, 60, NOW + RTT)
    each.on_ack_received([(2, 4), (0, 0)], 0.0, NOW + 2 * RTT)
    result = each.on_ack_received([(0, 4)], 0.0, NOW + 2.1 * RTT)
    assert (result.acked_probes, result.spurious) == ([1], 0)


def test_no_probe_timeout_comes_of_a_probe_alone() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 1450, NOW + RTT, is_mtu_probe=True)
    assert each.bytes_in_flight == 1450
    assert each.get_timer() is None


def test_a_probe_does_not_put_off_the_probe_timeout_of_data() -> None:
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW + RTT)
    timer = each.get_timer()
    each.on_packets_sent(2, 1, 1450, NOW + RTT + 0.05, is_mtu_probe=True)
    assert each.get_timer() == timer


def test_discarded_packets_leave_without_a_word_to_congestion_control() -> None:
    each = measured(size=1400)
    window = each.congestion.congestion_window
    each.on_packets_sent(1, 4, 1400, NOW + RTT)
    each.on_packets_sent(5, 1, 1400, NOW + RTT, payload="stream 4")
    each.on_packets_sent(6, 1, 1450, NOW + RTT, is_mtu_probe=True)
    each.on_packets_sent(7, 1, 1200, NOW + RTT)
    result = each.discard(larger_than=1200)
    assert (result.discarded, result.discarded_bytes) == (6, 5 * 1400 + 1450)
    assert (result.payloads, result.probes) == (["stream 4"], [6])
    assert each.bytes_in_flight == 1200
    assert each.congestion.congestion_window == window


def test_a_late_ack_of_a_discarded_packet_is_legal_and_no_rtt_sample() -> None:
    each = measured(size=1400)
    each.on_packets_sent(1, 4, 1400, NOW + RTT)
    each.discard(larger_than=1200)
    assert each.on_ack_received([(0, 4)], 0.0, NOW + 7.0) == AckResult()
    assert each.latest_rtt == pytest.approx(RTT)
    assert each.get_timer() is None


def test_after_a_discard_an_initial_window_is_the_most_until_something_new_arrives() -> None:
    each = measured("none", size=1400)
    each.on_packets_sent(1, 1, 1200, NOW + RTT)
    each.on_packets_sent(2, 40, 1400, NOW + RTT)
    each.discard(larger_than=1200)
    each.set_max_datagram_size(1200)
    assert each.can_send() == 12000 - 1200
    each.on_packets_sent(42, 2, 1200, NOW + 2 * RTT)
    # Packet 1 was sent before, so what it says is old.
    each.on_ack_received([(0, 1)], 0.0, NOW + 2 * RTT)
    assert each.can_send() == 12000 - 2400
    each.on_ack_received([(42, 43), (0, 1)], 0.0, NOW + 3 * RTT)
    assert each.can_send() > 1_000_000


def test_discarding_nothing_changes_nothing() -> None:
    each = measured("none")
    each.on_packets_sent(1, 2, 1200, NOW + RTT)
    assert each.discard(larger_than=1200).discarded == 0
    assert each.can_send() > 1_000_000


def test_discarding_what_a_loss_timer_waits_for_stops_it() -> None:
    each = measured(size=1400)
    each.on_packets_sent(1, 1, 1400, NOW + RTT)
    each.on_packets_sent(2, 1, 1200, NOW + RTT)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 2 * RTT)
    assert each.get_timer() is not None
    each.discard(larger_than=1200)
    assert each.get_timer() is None


def test_discarding_everything_leaves_nothing() -> None:
    each = measured()
    each.on_packets_sent(1, 3, SIZE, NOW + RTT)
    each.on_packets_sent(4, 1, 60, NOW + RTT, payload="stream 4")
    result = each.discard_everything()
    assert (result.discarded, result.payloads) == (4, ["stream 4"])
    assert each.bytes_in_flight == 0
    assert each.get_timer() is None


def test_a_smaller_datagram_size_reaches_window_and_pacer() -> None:
    each = measured(size=1400)
    window = each.congestion.congestion_window
    each.set_max_datagram_size(1050)
    assert each.congestion.congestion_window == pytest.approx(window * 0.75, abs=1)
    assert each.pacer.max_datagram_size == 1050


def stalled() -> LossRecovery:
    """Return one with packets 1 and 2 out, of which 2 was acknowledged: 1 is lost at NOW + RTT + 0.1125."""
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW + RTT)
    each.on_packets_sent(2, 1, SIZE, NOW + RTT)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 2 * RTT)
    assert each.get_timer() == pytest.approx(NOW + RTT + 0.1125)
    return each


def test_time_we_slept_through_makes_nothing_lost() -> None:
    each = stalled()
    each.excuse_stall(0.5)
    assert each.get_timer() == pytest.approx(NOW + RTT + 0.6125)
    assert each.on_timeout(NOW + RTT + 0.5).lost == 0
    assert each.on_timeout(NOW + RTT + 0.6125).lost == 1


def test_an_ack_read_late_makes_nothing_lost_by_time() -> None:
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW + RTT)
    each.excuse_stall(0.5)
    assert each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + RTT + 0.5).lost == 0


def test_what_is_sent_after_a_stall_has_no_more_time_than_ever() -> None:
    each = stalled()
    each.excuse_stall(0.5)
    each.on_packets_sent(3, 2, SIZE, NOW + 1.0)
    each.on_ack_received([(4, 4), (2, 2), (0, 0)], 0.0, NOW + 1.0 + RTT)
    assert each.on_timeout(NOW + 1.0 + 1.2 * RTT).lost == 1


def test_the_probe_timeout_waits_as_long_as_we_slept() -> None:
    each = measured()
    each.on_packets_sent(1, 1, SIZE, NOW + RTT)
    timer = each.get_timer()
    assert timer is not None
    each.excuse_stall(2.0)
    assert each.get_timer() == pytest.approx(timer + 2.0)


def test_a_stall_with_nothing_out_is_forgotten() -> None:
    each = measured()
    each.excuse_stall(2.0)
    each.on_packets_sent(1, 2, SIZE, NOW + 3.0)
    each.on_ack_received([(2, 2), (0, 0)], 0.0, NOW + 3.0 + RTT)
    assert each.get_timer() == pytest.approx(NOW + 3.0 + 1.125 * RTT)


def test_reordering_raises_the_packet_threshold_up_to_a_bound() -> None:
    each = measured("none")
    each.on_packets_sent(1, 200, SIZE, NOW + RTT)
    assert each.on_ack_received([(10, 10), (0, 0)], 0.0, NOW + 2 * RTT).lost == 7
    result = each.on_ack_received([(0, 10)], 0.0, NOW + 2 * RTT)
    assert (result.spurious, each.packet_threshold) == (7, 10)
    each.on_ack_received([(200, 200), (0, 10)], 0.0, NOW + 2 * RTT)
    each.on_ack_received([(0, 200)], 0.0, NOW + 2 * RTT)
    assert each.packet_threshold == 64


def test_losses_by_size_are_counted_and_taken_back() -> None:
    each = measured("none", size=1400)
    each.on_packets_sent(1, 8, 1400, NOW + RTT)
    each.on_ack_received([(8, 8), (0, 0)], 0.0, NOW + 2 * RTT)
    count = each.size_counts[1400]
    assert (count.sent, count.acked, count.lost) == (9, 2, 5)
    each.on_ack_received([(0, 8)], 0.0, NOW + 2 * RTT)
    assert (count.acked, count.lost) == (4, 0)


def test_a_window_used_in_part_is_not_what_limits() -> None:
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW + RTT)
    each.on_ack_received([(0, 2)], 0.0, NOW + 2 * RTT)
    assert not each.is_cwnd_limited
    each.on_packets_sent(3, each.can_send() // SIZE, SIZE, NOW + 2 * RTT)
    assert each.is_cwnd_limited


@pytest.mark.parametrize("congestion", ["cubic", "reno", "bbr", "none"])
def test_an_ack_in_the_same_instant_harms_nobody(congestion: str) -> None:
    each = recovery(congestion)
    for number in range(20):
        each.on_packets_sent(number, 1, SIZE, NOW)
        each.on_ack_received([(0, number)], 0.0, NOW)
    assert each.can_send() >= 12000
    assert each.pacer.budget(NOW + 1.0) > 0


def test_the_numbers_of_the_rtt_are_those_of_the_estimator() -> None:
    each = measured()
    assert each.latest_rtt == each.min_rtt == each.smoothed_rtt == pytest.approx(RTT)
    assert each.rttvar == pytest.approx(RTT / 2)
    assert each.pto() == pytest.approx(RTT + 2 * RTT + 0.025)


def test_a_loss_says_when_its_packets_were_sent() -> None:
    each = measured()
    each.on_packets_sent(1, 2, SIZE, NOW + RTT)
    each.on_packets_sent(3, 4, 300, NOW + 1.5 * RTT)
    result = each.on_ack_received([(3, 6), (0, 0)], 0.0, NOW + 2.5 * RTT)
    assert result.lost_sizes == [(SIZE, 2, NOW + RTT)]


def test_a_probe_timeout_says_how_large_the_largest_unanswered_packet_is() -> None:
    each = measured()
    each.on_packets_sent(1, 1, 300, NOW + RTT)
    each.on_packets_sent(2, 1, 1350, NOW + RTT)
    each.on_packets_sent(3, 1, 1472, NOW + RTT, is_mtu_probe=True)
    timer = each.get_timer()
    assert timer is not None
    assert each.on_timeout(timer).largest_unanswered == 1350


def test_lost_packets_are_told_by_the_runs_they_were_sent_in() -> None:
    each = measured()
    each.on_packets_sent(1, 4, SIZE, NOW + RTT)
    each.on_packets_sent(5, 4, SIZE, NOW + RTT)
    assert [run.first for run in each.runs_from(2)] == [5]
    assert [run.first for run in each.runs_from(1)] == [1, 5]
    assert each.runs_from(9) == []
    result = each.on_ack_received([(8, 8), (1, 1)], 0.0, NOW + 2 * RTT)
    assert [(run.first, mask) for run, mask in result.lost_runs] == [(1, 0b1110), (5, 0b0001)]
    assert result.lost == 4
