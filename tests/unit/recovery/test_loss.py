"""qtunnel.recovery.loss."""

from __future__ import annotations

import pytest

from qtunnel.recovery.loss import Stall, detect_lost, loss_delay
from qtunnel.recovery.rtt import RttEstimator
from tests.unit.recovery.runs import run, sent, taken

NO_STALL = Stall()


def test_three_later_packets_make_one_lost() -> None:
    packets = sent(run(0, 4), run(4, 1))
    packets.take(4, 4)
    lost, _ = detect_lost(packets, 4, 3, 1.0, 0.1, NO_STALL)
    assert taken(lost) == [0, 1]
    assert [each.outstanding for each in packets.runs()] == [0b1100]


def test_without_a_later_one_nothing_is_lost_however_long_it_takes() -> None:
    packets = sent(run(5, 3))
    assert detect_lost(packets, 4, 3, 1.0, 1e9, NO_STALL) == ([], None)


def test_time_makes_the_others_lost() -> None:
    packets = sent(run(0, 1, time_sent=10.0), run(1, 1, time_sent=10.5))
    packets.take(1, 1)
    lost, loss_time = detect_lost(packets, 1, 3, 0.9, 10.6, NO_STALL)
    assert (lost, loss_time) == ([], 10.9)
    lost, loss_time = detect_lost(packets, 1, 3, 0.9, 10.9, NO_STALL)
    assert (taken(lost), loss_time) == ([0], None)
    assert len(packets) == 0


def test_the_next_loss_is_that_of_the_oldest() -> None:
    packets = sent(run(0, 1, time_sent=1.0), run(1, 1, time_sent=2.0), run(2, 1, time_sent=2.0))
    packets.take(2, 2)
    assert detect_lost(packets, 2, 3, 5.0, 2.1, NO_STALL)[1] == 6.0


def test_a_rounding_error_does_not_keep_the_timer_going_off() -> None:
    sent_at, delay = 100000.1, 0.30000000000000004
    packets = sent(run(0, 1, time_sent=sent_at), run(1, 1, time_sent=sent_at))
    packets.take(1, 1)
    _, loss_time = detect_lost(packets, 1, 3, delay, sent_at, NO_STALL)
    assert loss_time is not None
    lost, _ = detect_lost(packets, 1, 3, delay, loss_time - 1e-10, NO_STALL)
    assert taken(lost) == [0]


def test_a_stall_gives_what_was_out_more_time() -> None:
    packets = sent(run(0, 1, time_sent=1.0), run(1, 1, time_sent=1.0), run(2, 1, time_sent=1.0))
    packets.take(2, 2)
    lost, loss_time = detect_lost(packets, 2, 3, 0.5, 1.6, Stall(through=0, duration=0.3))
    assert taken(lost) == [1]
    assert loss_time == pytest.approx(1.8)


def test_a_packet_lost_across_one_that_is_not_follows_a_gap() -> None:
    packets = sent(run(0, 1), run(1, 1, time_sent=9.0), run(2, 1), run(3, 1, time_sent=9.0))
    packets.take(3, 3)
    lost, _ = detect_lost(packets, 3, 4, 1.0, 9.5, NO_STALL)
    assert [(each.first, each.follows_gap) for each, _ in lost] == [(0, False), (2, True)]


def test_the_loss_delay_is_nine_eighths_of_the_larger_rtt_and_at_least_a_millisecond() -> None:
    rtt = RttEstimator(0.333)
    rtt.update(0.08, 0.0, 1.0)
    rtt.update(0.16, 0.0, 2.0)
    assert loss_delay(rtt) == pytest.approx(0.18)
    rtt = RttEstimator(0.333)
    rtt.update(0.0001, 0.0, 1.0)
    assert loss_delay(rtt) == 0.001
