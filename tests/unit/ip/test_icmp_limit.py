"""qtunnel.ip.icmp_limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import ConfigError
from qtunnel.ip.icmp_limit import TokenBucket


def test_a_burst_passes_at_once_and_the_next_must_wait() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    assert [bucket.allow(100.0) for _ in range(6)] == [True] * 5 + [False]


def test_tokens_come_back_at_the_rate() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    for _ in range(5):
        bucket.allow(0.0)
    assert not bucket.allow(0.05)
    assert bucket.allow(0.125)
    assert not bucket.allow(0.125)


def test_no_more_than_the_burst_is_ever_saved() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    bucket.allow(0.0)
    assert sum(bucket.allow(1e6) for _ in range(100)) == 5


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    bucket = TokenBucket(rate=10, burst=2)
    assert bucket.allow(50.0)
    assert bucket.allow(10.0)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(rate=10, burst=1)
    assert bucket.allow(50.0)
    assert not bucket.allow(50.0)
    assert not bucket.allow(10.0)
    assert not bucket.allow(50.05)
    assert bucket.allow(50.2)


def test_rate_zero_is_the_burst_and_then_silence() -> None:
    bucket = TokenBucket(rate=0, burst=2)
    assert [bucket.allow(now) for now in (0.0, 1.0, 1e9)] == [True, True, False]


def test_burst_zero_is_silence() -> None:
    assert not TokenBucket(rate=100, burst=0).allow(5.0)


@pytest.mark.parametrize(("rate", "burst"), [(-1, 1), (math.nan, 1), (math.inf, 1), (1, -1), (1, math.nan)])
def test_numbers_that_are_none_are_refused(rate: float, burst: float) -> None:
    with pytest.raises(ConfigError, match="icmp_"):
        TokenBucket(rate=rate, burst=burst)


@given(
    st.floats(0, 1000),
    st.integers(0, 100),
    st.lists(st.floats(0, 0.1), max_size=300),
)
def test_over_any_time_no_more_than_burst_and_rate_pass(rate: float, burst: int, steps: list[float]) -> None:
    bucket = TokenBucket(rate=rate, burst=burst)
    now = 0.0
    passed = 0
    for step in steps:
        now += step
        passed += bucket.allow(now)
    elapsed = sum(steps[1:])
    assert passed <= burst + rate * elapsed + 1e-6
