"""qtunnel.recovery.congestion and its base: names, windows, pacing rate."""

from __future__ import annotations

import pytest

from qtunnel.recovery.congestion import CONGESTION_CONTROLS, make_congestion_control
from qtunnel.recovery.congestion.base import initial_window, minimum_window, window_pacing_rate


@pytest.mark.parametrize("name", CONGESTION_CONTROLS)
def test_every_controller_is_made_by_its_name(name: str) -> None:
    control = make_congestion_control(name, 1200, seed=7)
    assert control.name == name
    assert control.congestion_window >= 12000


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'vegas' is none of cubic, bbr, reno, none"):
        make_congestion_control("vegas", 1200)


@pytest.mark.parametrize(
    ("size", "initial", "minimum"), [(1200, 12000, 2400), (1472, 14720, 2944), (9000, 18000, 18000)]
)
def test_windows_follow_the_datagram_size(size: int, initial: int, minimum: int) -> None:
    assert initial_window(size) == initial
    assert minimum_window(size) == minimum


def test_a_window_is_paced_a_little_faster_than_it_is_used_and_twice_in_slow_start() -> None:
    assert window_pacing_rate(100_000, 0.1, in_slow_start=False) == pytest.approx(1_250_000)
    assert window_pacing_rate(100_000, 0.1, in_slow_start=True) == pytest.approx(2_000_000)


def test_without_an_rtt_there_is_no_rate() -> None:
    assert window_pacing_rate(100_000, 0.0, in_slow_start=True) is None
