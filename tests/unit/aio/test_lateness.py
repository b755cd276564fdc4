"""How late wake-ups came: of the last ten seconds, in a bounded histogram."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.aio.lateness import SLOTS, Lateness

NOW = 1000.0


def test_without_wake_ups_nothing_was_late() -> None:
    lateness = Lateness()
    assert (lateness.count(NOW), lateness.largest(NOW), lateness.quantile(0.99, NOW)) == (0, 0.0, 0.0)


def test_one_late_wake_up_in_two_hundred_is_the_largest_and_not_the_usual() -> None:
    lateness = Lateness()
    for number in range(199):
        lateness.add(0.0001, NOW + number / 100)
    lateness.add(0.5, NOW + 2)
    assert lateness.largest(NOW + 2) == 0.5
    assert lateness.quantile(0.99, NOW + 2) == pytest.approx(0.000128)
    assert lateness.quantile(1.0, NOW + 2) == 0.5


def test_what_is_older_than_ten_seconds_is_forgotten() -> None:
    lateness = Lateness()
    lateness.add(0.5, NOW)
    assert lateness.largest(NOW + SLOTS - 1) == 0.5
    assert lateness.count(NOW + SLOTS) == 0
    for second in range(10 * SLOTS):
        lateness.add(0.001, NOW + second)
    assert lateness.count(NOW + second) == SLOTS


@pytest.mark.parametrize("late", [-0.01, 0.0, 1e9])
def test_any_lateness_has_a_bucket(late: float) -> None:
    lateness = Lateness()
    lateness.add(late, NOW)
    assert lateness.count(NOW) == 1
    assert lateness.quantile(0.99, NOW) <= max(0.0, late)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_never_too_little_and_at_most_twice_the_right_one(late: list[float], share: float) -> None:
    lateness = Lateness()
    for each in late:
        lateness.add(each, NOW)
    found = lateness.quantile(share, NOW)
    below = sorted(late)[max(0, -int(-share * len(late) // 1) - 1)]
    assert found >= below or found == pytest.approx(below)
    assert found <= max(2 * below, below + 1e-6)
