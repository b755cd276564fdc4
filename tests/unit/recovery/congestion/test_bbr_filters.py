"""qtunnel.recovery.congestion.bbr_filters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.recovery.congestion.bbr_filters import MaxBandwidthFilter, WindowedMaxFilter


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1000)), min_size=1), st.integers(1, 12))
def test_the_maximum_is_that_of_the_window_or_a_smaller_sample_of_it(
    samples: list[tuple[int, float]], length: int
) -> None:
    filter_, seen, time = WindowedMaxFilter(), list[tuple[int, float]](), 0
    for step, value in samples:
        time += step
        seen.append((time, value))
        maximum = filter_.update(value, time, length)
        within = [value for when, value in seen if time - when <= length]
        assert maximum == filter_.maximum
        assert maximum in within
        assert maximum >= value


def test_a_falling_series_is_followed_down() -> None:
    filter_ = WindowedMaxFilter()
    maxima = [filter_.update(100.0 - time, time, 4) for time in range(50)]
    assert maxima[0] == 100.0
    assert all(100 - time <= each <= 100 - time + 4 for time, each in enumerate(maxima))


def test_a_filter_without_a_sample_says_zero() -> None:
    assert WindowedMaxFilter().maximum == MaxBandwidthFilter().maximum == 0


def test_bandwidth_is_kept_for_this_cycle_and_the_last() -> None:
    bandwidth = MaxBandwidthFilter()
    bandwidth.update(100.0)
    bandwidth.advance()
    bandwidth.update(60.0)
    assert bandwidth.maximum == 100.0
    bandwidth.advance()
    assert bandwidth.maximum == 60.0
    bandwidth.update(70.0)
    bandwidth.update(65.0)
    assert bandwidth.maximum == 70.0


def test_a_cycle_without_a_sample_forgets_nothing() -> None:
    bandwidth = MaxBandwidthFilter()
    bandwidth.update(100.0)
    for _ in range(5):
        bandwidth.advance()
    assert bandwidth.maximum == 100.0
