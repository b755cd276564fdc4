"""qtunnel.recovery.rtt. The rules of RFC 9002 §5 are in tests/conformance/test_rfc9002.py."""

from __future__ import annotations

from math import inf

from qtunnel.recovery.rtt import RttEstimator


def test_before_a_sample_the_initial_rtt_stands() -> None:
    rtt = RttEstimator(0.333)
    assert (rtt.smoothed_rtt, rtt.rttvar, rtt.min_rtt) == (0.333, 0.1665, inf)
    assert not rtt.has_sample


def test_the_first_sample_replaces_everything() -> None:
    rtt = RttEstimator(0.333)
    rtt.update(0.1, 0.025, 5.0)
    assert (rtt.smoothed_rtt, rtt.rttvar, rtt.min_rtt, rtt.latest_rtt) == (0.1, 0.05, 0.1, 0.1)
    assert rtt.first_sample_time == 5.0


def test_resetting_min_rtt_before_a_sample_changes_nothing() -> None:
    rtt = RttEstimator(0.333)
    rtt.reset_min_rtt()
    assert rtt.min_rtt == inf
