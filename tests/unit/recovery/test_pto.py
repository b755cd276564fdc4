"""qtunnel.recovery.pto."""

from __future__ import annotations

import pytest

from qtunnel.recovery.pto import backoff, pto_period
from qtunnel.recovery.rtt import RttEstimator


def test_the_period_is_rtt_four_deviations_and_the_peers_delay() -> None:
    rtt = RttEstimator(0.333)
    rtt.update(0.1, 0.0, 1.0)
    assert pto_period(rtt, 0.025) == pytest.approx(0.1 + 0.2 + 0.025)


def test_a_steady_rtt_leaves_a_millisecond() -> None:
    rtt = RttEstimator(0.333)
    rtt.update(0.1, 0.0, 1.0)
    rtt.rttvar = 0.0
    assert pto_period(rtt, 0.0) == pytest.approx(0.101)


def test_the_backoff_doubles_and_stays_a_number() -> None:
    assert [backoff(each) for each in range(4)] == [1, 2, 4, 8]
    assert backoff(100_000) == backoff(16)
