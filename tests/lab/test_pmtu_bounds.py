"""netlab.pmtu.bounds: figures that can be computed by hand."""

import math

import pytest

from netlab.pmtu.bounds import rate_bound, share_bound


@pytest.mark.parametrize("trials", [1, 10, 300, 10_000])
def test_of_nothing_seen_the_bound_is_that_of_the_rule_of_three(trials):
    assert share_bound(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials), rel=1e-6)
    assert rate_bound(0, trials) == pytest.approx(-math.log(0.05) / trials, rel=1e-6)


def test_what_was_always_seen_may_always_happen():
    assert share_bound(7, 7) == 1.0


def test_the_more_was_seen_the_higher_is_the_bound():
    assert 0.001 < share_bound(1, 1000) < share_bound(5, 1000) < share_bound(50, 1000) < 0.07
    assert rate_bound(1, 2.0) == pytest.approx(4.744 / 2, rel=1e-3)  # of a table of Poisson's distribution
    assert share_bound(1, 1000) == pytest.approx(4.74e-3, rel=1e-2)
