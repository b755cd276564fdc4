"""The rate limit."""

from __future__ import annotations

from qtunnel.quic.token_bucket import TokenBucket


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    bucket = TokenBucket(rate=10.0, burst=3.0)
    assert [bucket.allow(5.0) for _ in range(5)] == [True, True, True, False, False]
    assert [bucket.allow(5.11), bucket.allow(5.11)] == [True, False]


def test_a_pause_fills_it_to_the_burst_and_no_further() -> None:
    bucket = TokenBucket(rate=10.0, burst=3.0)
    bucket.allow(0.0)
    assert [bucket.allow(1000.0) for _ in range(5)] == [True, True, True, False, False]


def test_time_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(rate=10.0, burst=1.0)
    assert bucket.allow(5.0)
    assert not bucket.allow(5.0)
    assert not bucket.allow(4.0)


def test_over_a_second_the_rate_is_kept() -> None:
    bucket = TokenBucket(rate=50.0, burst=50.0)
    for _ in range(50):
        bucket.allow(0.0)
    assert sum(bucket.allow(step / 10_000) for step in range(1, 10_001)) in (49, 50)
