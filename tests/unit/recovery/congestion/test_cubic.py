"""qtunnel.recovery.congestion.cubic; the numbers of RFC 9438 are in tests/conformance/test_rfc9438.py."""

from __future__ import annotations

import pytest

from qtunnel.recovery.congestion.cubic import Cubic
from tests.unit.recovery.congestion.samples import RTT, ack, loss

SIZE = 1200


def after_loss(segments: int) -> Cubic:
    """Return a controller that lost something at a window of so many segments, at time 0."""
    control = Cubic(SIZE)
    control.on_ack(ack(-1.0, segments * SIZE - control.congestion_window))
    assert control.congestion_window == segments * SIZE
    control.on_loss(loss(0.0))
    return control


def grow(control: Cubic, start: float, seconds: float, rtt: float = RTT) -> None:
    """Acknowledge a window each round trip, in ten ACKs."""
    for step in range(int(seconds / rtt * 10)):
        control.on_ack(ack(start + step * rtt / 10, control.congestion_window // 10, rtt=rtt))


def test_the_window_comes_back_slowly_and_then_searches_on() -> None:
    control = after_loss(1000)
    grow(control, 0.0, 9.1)
    assert control.congestion_window == pytest.approx(1000 * SIZE, rel=0.01)
    grow(control, 9.1, 5.0)
    assert control.congestion_window > 1030 * SIZE


def test_growth_in_a_round_trip_is_bounded_by_half_the_window() -> None:
    control = after_loss(10)
    control.on_ack(ack(0.0, SIZE))
    window = control.congestion_window
    control.on_ack(ack(1000.0, window))
    assert control.congestion_window <= 1.5 * window + 1


def test_a_shrinking_path_scales_the_whole_curve() -> None:
    wide, narrow = after_loss(1000), after_loss(1000)
    narrow.on_ack(ack(0.0, SIZE))
    wide.on_ack(ack(0.0, SIZE))
    narrow.set_max_datagram_size(SIZE // 2)
    grow(wide, 0.1, 4.0)
    grow(narrow, 0.1, 4.0)
    assert narrow.congestion_window == pytest.approx(wide.congestion_window / 2, rel=0.001)


def test_undo_brings_the_old_curve_back() -> None:
    control, same = after_loss(1000), after_loss(1000)
    for each in (control, same):
        grow(each, 0.0, 3.0)
    control.on_loss(loss(3.0))
    control.on_spurious_loss(3.01)
    for each in (control, same):
        grow(each, 3.02, 4.0)
    assert control.congestion_window == same.congestion_window
