"""RFC 9438: CUBIC, with HyStart++ (RFC 9406) in front."""

from __future__ import annotations

from math import inf

import pytest

from qtunnel.recovery.congestion.cubic import Cubic
from qtunnel.recovery.loss_recovery import LossRecovery
from tests.unit.recovery.congestion.samples import RTT, ack, loss

SIZE = 1200


def after_loss(segments: int) -> Cubic:
    """Return a controller that lost something at a window of so many segments; its epoch begins at 0."""
    control = Cubic(SIZE)
    control.on_ack(ack(-1.0, segments * SIZE - control.congestion_window))
    control.on_loss(loss(0.0))
    control.on_ack(ack(0.0, 1))
    return control


def windows(control: Cubic, times: list[float], rtt: float = RTT) -> list[float]:
    """Acknowledge a window each round trip, in twenty ACKs. Return the window at each time, in segments."""
    found, now = [], 0.0
    for until in times:
        while now < until:
            now += rtt / 20
            control.on_ack(ack(now, control.congestion_window // 20, rtt=rtt))
        found.append(control.congestion_window / SIZE)
    return found


@pytest.mark.parametrize(("w_max", "k"), [(10, 1.957), (100, 4.217), (1000, 9.086)])
def test_cub_01_k_is_the_time_back_to_w_max(w_max: int, k: float) -> None:
    control = after_loss(w_max)
    assert control._k == pytest.approx(k, abs=0.001)
    assert control._w_cubic(0.0) == pytest.approx(0.7 * w_max * SIZE)
    assert control._w_cubic(control._k) == pytest.approx(w_max * SIZE)


def test_cub_01_the_window_follows_the_cubic_function() -> None:
    control = after_loss(1000)
    for found, t in zip(windows(control, [2.0, 5.0, 9.0, 12.0]), [2.0, 5.0, 9.0, 12.0], strict=True):
        # The target is where the function will be in a round trip, and the window is always on its way there.
        low, high = (0.4 * (each - 9.086) ** 3 + 1000 for each in (t - RTT, t + RTT))
        assert low <= found <= high


def test_cub_02_the_target_is_the_window_a_round_trip_ahead() -> None:
    control = after_loss(1000)
    window = control.congestion_window
    control.on_ack(ack(3.0, window))
    assert control.congestion_window / SIZE == pytest.approx(0.4 * (3.0 + RTT - 9.086) ** 3 + 1000, rel=0.001)


def test_cub_02_the_target_is_never_below_the_window_nor_above_one_and_a_half() -> None:
    control = after_loss(1000)
    windows(control, [9.0])
    window = control._window = 1100.0 * SIZE
    control.on_ack(ack(9.1, SIZE))
    assert control._window >= window
    control.on_ack(ack(500.0, control.congestion_window))
    assert control._window == pytest.approx(1.5 * window, rel=0.01)


def test_cub_03_ten_seconds_without_using_the_window_are_no_time() -> None:
    steady, paused = after_loss(1000), after_loss(1000)
    windows(steady, [4.0])
    windows(paused, [4.0])
    for step in range(100):
        paused.on_ack(ack(4.0 + step / 10, SIZE, limited=False))
    paused.on_ack(ack(14.0, SIZE, limited=False))
    assert paused.congestion_window == steady.congestion_window
    for step in range(40):
        steady.on_ack(ack(4.0 + step * RTT / 20, steady.congestion_window // 20))
        paused.on_ack(ack(14.0 + step * RTT / 20, paused.congestion_window // 20))
    assert paused.congestion_window == pytest.approx(steady.congestion_window, rel=0.001)


def test_cub_04_on_a_short_path_it_grows_as_reno_would() -> None:
    control = after_loss(10)
    found = windows(control, [0.2, 0.4], rtt=0.01)
    # alpha = 9/17 segments for each of 20 round trips, until it is where it was; then 1.
    assert found[0] == pytest.approx(7 + (10 - 7) + (20 - 3 * 17 / 9), abs=0.6)
    assert found[1] - found[0] == pytest.approx(20, abs=0.8)


def test_cub_04_the_factor_is_nine_seventeenths_below_cwnd_prior() -> None:
    control = after_loss(100)
    start = control._w_est
    control.on_ack(ack(0.01, control.congestion_window))
    assert (control._w_est - start) / SIZE == pytest.approx(9 / 17, rel=0.001)


@pytest.mark.parametrize("t", [3.0, 14.0])
def test_cub_05_each_segment_adds_its_share_of_the_way_to_the_target(t: float) -> None:
    control = after_loss(1000)
    windows(control, [t])
    before = control._window
    control.on_ack(ack(t + 0.01, SIZE))
    target = (0.4 * (t + 0.01 + RTT - 9.0856) ** 3 + 1000) * SIZE
    assert control._window - before == pytest.approx((target - before) * SIZE / before, rel=0.02)


def test_cub_06_a_loss_leaves_seven_tenths_at_once() -> None:
    control = Cubic(SIZE)
    control.on_ack(ack(0.0, 108_000))
    control.on_loss(loss(1.0))
    assert control.congestion_window == 84_000
    assert control.ssthresh == 84_000


def test_cub_06_two_segments_are_the_least() -> None:
    control = Cubic(SIZE)
    for _ in range(20):
        control.on_loss(loss(1.0))
    assert control.congestion_window == control.ssthresh == 2 * SIZE


def test_cub_07_a_window_that_is_not_used_does_not_grow() -> None:
    control = Cubic(SIZE)
    recovery = LossRecovery(congestion=control, max_ack_delay=0.025)
    recovery.on_packets_sent(0, 10, SIZE, 999.9)
    recovery.on_ack_received([(8, 9), (0, 4)], 0.0, 1000.0)
    now = 1000.0
    window = None
    for number in range(10, 400):
        recovery.on_packets_sent(number, 1, SIZE, now)
        now += RTT
        recovery.on_ack_received([(8, number), (0, 4)], 0.0, now)
        if number == 13:
            window = control.congestion_window
    assert control.congestion_window == window


def test_cub_09_a_loss_below_the_old_maximum_lowers_the_new_one() -> None:
    control = after_loss(100)
    control.on_loss(loss(0.0))
    assert control._w_max / SIZE == pytest.approx(70 * (1 + 0.7) / 2, rel=0.001)
    assert control.congestion_window / SIZE == pytest.approx(49, rel=0.001)


def test_cub_10_after_a_timeout_the_stage_starts_at_k_zero() -> None:
    control = after_loss(100)
    control.on_loss(loss(1.0))
    control.on_persistent_congestion(1.0)
    ssthresh = control.ssthresh
    now = 1.0
    while control.congestion_window < int(ssthresh):
        now += RTT
        control.on_ack(ack(now, control.congestion_window))
    control.on_ack(ack(now + RTT, 1))
    assert control._k == 0.0
    assert control._w_max == pytest.approx(control._w_est, abs=1)
    assert control._w_max == pytest.approx(ssthresh, abs=1)


def spurious(now: float = 1000.0) -> tuple[Cubic, LossRecovery, int]:
    """Return a controller, its recovery and its window before a packet was declared lost that was only late."""
    control = Cubic(SIZE)
    recovery = LossRecovery(congestion=control, max_ack_delay=0.025)
    recovery.on_packets_sent(0, 10, SIZE, now)
    recovery.on_ack_received([(0, 2)], 0.0, now + RTT)
    before = control.congestion_window
    assert recovery.on_ack_received([(4, 7), (0, 2)], 0.0, now + RTT).lost == 1
    return control, recovery, before


def test_cub_11_a_packet_that_was_only_late_restores_the_window() -> None:
    control, recovery, before = spurious()
    assert control.congestion_window < before
    recovery.on_ack_received([(0, 7)], 0.0, 1000.0 + RTT)
    assert control.congestion_window >= before
    assert control.ssthresh == inf


def test_cub_11_while_one_of_them_is_still_missing_nothing_is_restored() -> None:
    control = Cubic(SIZE)
    recovery = LossRecovery(congestion=control, max_ack_delay=0.025)
    recovery.on_packets_sent(0, 10, SIZE, 1000.0)
    assert recovery.on_ack_received([(7, 9), (3, 3), (0, 0)], 0.0, 1000.0 + RTT).lost == 5
    window = control.congestion_window
    recovery.on_ack_received([(7, 9), (0, 4)], 0.0, 1000.0 + RTT)
    assert control.congestion_window == window
    recovery.on_ack_received([(0, 9)], 0.0, 1000.0 + RTT)
    assert control.congestion_window > window


def test_cub_11_a_window_above_the_old_one_is_left_alone() -> None:
    control, recovery, before = spurious()
    now, number = 1000.0 + RTT, 10
    while control.congestion_window <= before:
        count = max(recovery.can_send() // SIZE, 1)
        recovery.on_packets_sent(number, count, SIZE, now)
        now += RTT
        recovery.on_ack_received([(4, number + count - 1), (0, 2)], 0.0, now)
        number += count
    window = control.congestion_window
    recovery.on_ack_received([(0, number - 1)], 0.0, now)
    assert control.congestion_window == window


def test_cub_12_slow_start_below_ssthresh() -> None:
    control = Cubic(SIZE)
    control.on_ack(ack(0.0, 12_000))
    assert control.congestion_window == 24_000


def test_cub_12_slow_start_left_without_a_loss_begins_at_k_zero() -> None:
    control = Cubic(SIZE)
    now, number = 0.0, 0
    for rtt in [0.04] * 3 + [0.06] * 8:
        for _ in range(10):
            control.on_ack(ack(now, SIZE, rtt=rtt, largest_acked=number, largest_sent=number + 10))
            number += 1
        now += rtt
    assert control.ssthresh < inf
    assert control._k == 0.0
    assert control._cwnd_prior == control.ssthresh
    assert control._w_max == pytest.approx(control.ssthresh, rel=0.001)
