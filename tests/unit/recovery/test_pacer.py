"""qtunnel.recovery.pacer."""

from __future__ import annotations

import pytest

from qtunnel.recovery.congestion.none import Unlimited
from qtunnel.recovery.pacer import MAX_CREDIT_BYTES, Pacer

RATE = 12_500_000.0  # 100 Mbit/s
SIZE = 1400
NOW = 1000.0


def pacer(rate: float | None) -> Pacer:
    control = Unlimited()
    control.pacing_rate = rate
    return Pacer(control, SIZE)


def drained(rate: float) -> Pacer:
    """Return a pacer that has no credit left at NOW."""
    each = pacer(rate)
    each.on_sent(each.budget(NOW), NOW)
    assert each.budget(NOW) == 0
    return each


def test_without_a_rate_nothing_is_held_up() -> None:
    each = pacer(None)
    assert each.budget(NOW) == MAX_CREDIT_BYTES
    each.on_sent(10**6, NOW)
    each.clear_debt(NOW)
    assert each.budget(NOW) == MAX_CREDIT_BYTES
    assert each.next_time(NOW) is None


def test_credit_gathers_at_the_rate() -> None:
    each = drained(RATE)
    assert each.budget(NOW + 0.001) == pytest.approx(12_500, abs=1)


def test_credit_is_worth_two_milliseconds_at_most() -> None:
    assert drained(RATE).budget(NOW + 5.0) == 25_000


def test_credit_is_64_kilobytes_at_most() -> None:
    assert drained(100 * RATE).budget(NOW + 5.0) == MAX_CREDIT_BYTES


def test_a_slow_rate_still_gathers_two_datagrams() -> None:
    assert drained(1000.0).budget(NOW + 60.0) == 2 * SIZE


def test_the_first_packets_need_not_wait() -> None:
    assert pacer(1000.0).budget(NOW) == 2 * SIZE


def test_debt_is_paid_before_anything_is_sent() -> None:
    each = drained(RATE)
    each.on_sent(12_500, NOW)
    assert each.budget(NOW) == -12_500
    assert each.budget(NOW + 0.001) == pytest.approx(0, abs=1)


def test_a_wake_up_is_worth_a_millisecond_of_the_rate() -> None:
    each = drained(RATE)
    assert each.next_time(NOW) == pytest.approx(NOW + 0.001)
    assert each.budget(NOW + 0.001) == pytest.approx(12_500, abs=1)


def test_less_than_a_quantum_is_not_given_out_to_those_who_want_more() -> None:
    each = drained(RATE)
    half = NOW + 0.0005
    assert each.budget(half, wanted=20_000) == 0
    assert each.next_time(half, wanted=20_000) == pytest.approx(NOW + 0.001)
    assert each.budget(NOW + 0.001, wanted=20_000) == pytest.approx(12_500, abs=1)
    assert each.next_time(NOW + 0.001, wanted=20_000) is None


def test_all_that_is_wanted_is_given_out_also_below_a_quantum() -> None:
    each = drained(RATE)
    half = NOW + 0.0005
    assert each.budget(half, wanted=5_000) == pytest.approx(6_250, abs=1)
    assert each.next_time(half, wanted=5_000) is None


def test_debt_stays_debt_whatever_is_wanted() -> None:
    each = drained(RATE)
    each.on_sent(12_500, NOW)
    assert each.budget(NOW, wanted=20_000) == -12_500


@pytest.mark.parametrize("rate", [1_234.5, 333_333.3, 12_500_000.1, 98_765_432.1])
def test_when_the_time_has_come_a_datagram_may_go(rate: float) -> None:
    each, now = drained(rate), 98_765.4321
    for _ in range(200):
        each.on_sent(max(each.budget(now), 0), now)
        when = each.next_time(now)
        assert when is not None
        now = when
        assert each.budget(now) >= SIZE
        assert each.next_time(now) is None


def test_a_wake_up_is_worth_a_datagram_at_least() -> None:
    assert drained(14_000.0).next_time(NOW) == pytest.approx(NOW + 0.1)


def test_there_is_no_waiting_while_a_datagram_may_go() -> None:
    each = drained(RATE)
    assert each.next_time(NOW + 0.0002) is None


def test_forgiven_debt_leaves_no_credit() -> None:
    each = drained(RATE)
    each.on_sent(100_000, NOW)
    each.clear_debt(NOW)
    assert each.budget(NOW) == 0


def test_over_a_second_the_rate_is_kept() -> None:
    each, now, sent = drained(RATE), NOW, 0
    while now < NOW + 1.0:
        count = each.budget(now) // SIZE
        each.on_sent(count * SIZE, now)
        sent += count * SIZE
        now = each.next_time(now) or now + 0.0001
    assert sent == pytest.approx(RATE, rel=0.002)


def test_time_that_stands_still_or_goes_back_gives_nothing() -> None:
    each = drained(RATE)
    assert each.budget(NOW - 1.0) == 0


def test_a_rate_that_becomes_known_starts_from_an_empty_bucket() -> None:
    control = Unlimited()
    each = Pacer(control, SIZE)
    each.on_sent(14_000, NOW)
    control.pacing_rate = RATE
    assert each.budget(NOW) == 0
    assert each.budget(NOW + 0.001) == pytest.approx(12_500, abs=1)
