"""qtunnel.recovery.congestion.newreno."""

from __future__ import annotations

import pytest

from qtunnel.recovery.congestion.newreno import NewReno
from tests.unit.recovery.congestion.samples import ack, loss


def test_a_window_acknowledged_makes_it_grow_by_a_datagram() -> None:
    control = NewReno(1200)
    control.on_ack(ack(1.0, 108_000))
    control.on_loss(loss(1.1))
    assert control.congestion_window == 60_000
    for _ in range(50):
        control.on_ack(ack(1.2, 1200))
    assert control.congestion_window == pytest.approx(61_200, abs=20)


def test_one_ack_for_a_whole_window_is_the_same() -> None:
    control = NewReno(1200)
    control.on_loss(loss(1.1))
    control.on_ack(ack(1.2, 6000))
    assert control.congestion_window == 7200
