"""The controllers on a path in virtual time: do they fill it, and come back when it has been bad?"""

from __future__ import annotations

import pytest

from tests.unit.recovery.bottleneck import SIZE, Bottleneck, Path, Receiver, mbit

REAL = pytest.mark.parametrize("congestion", ["cubic", "reno", "bbr"])


def small(**changes: float) -> Path:
    """Return a path of 20 Mbit/s, 40 ms and a queue of one bandwidth-delay product."""
    return Path(rate=mbit(20), queue=mbit(20) * 0.04, **changes)


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
def test_100_mbit_at_40_ms_are_filled_after_start_up(congestion: str) -> None:
    bottleneck = Bottleneck(congestion, Path(), receiver=Receiver(ack_every=10))
    assert bottleneck.utilisation(2.0) > 0.75
    # Two of BBR's looks for the RTT are in it.
    assert bottleneck.utilisation(10.4) >= 0.96


@REAL
def test_an_application_that_sends_little_gets_no_large_window(congestion: str) -> None:
    bottleneck = Bottleneck(congestion, Path(), app_rate=mbit(5))
    bottleneck.run(6.0)
    assert bottleneck.control.congestion_window <= 2.5 * bottleneck.max_in_flight
    assert bottleneck.lost == 0


@REAL
def test_after_an_application_limited_time_the_path_is_filled_soon(congestion: str) -> None:
    bottleneck = Bottleneck(congestion, Path(), app_rate=mbit(5), receiver=Receiver(ack_every=10))
    bottleneck.run(3.0)
    bottleneck.limit(None)
    bottleneck.run(1.5)
    # One of BBR's looks for the RTT falls into it.
    assert bottleneck.utilisation(1.0) >= (0.85 if congestion == "bbr" else 0.96)


@REAL
@pytest.mark.parametrize("loss", [0.01, 0.1])
def test_random_loss_is_lived_through_and_every_packet_accounted_for(congestion: str, loss: float) -> None:
    bottleneck = Bottleneck(congestion, small(loss=loss))
    for _ in range(5):
        assert bottleneck.run(1.0) > 20 * SIZE
    bottleneck.path.loss = 0.0
    bottleneck.run(4.5)
    assert bottleneck.utilisation(1.5) > 0.85
    # What was dropped was found lost, and nothing else.
    assert bottleneck.lost == bottleneck.dropped
    assert bottleneck.sent * SIZE == (
        bottleneck.delivered + bottleneck.dropped * SIZE + bottleneck.on_the_way() * SIZE
    )


@REAL
def test_two_seconds_without_anything_are_lived_through(congestion: str) -> None:
    bottleneck = Bottleneck(congestion, small())
    bottleneck.run(3.0)
    bottleneck.path.loss = 1.0
    bottleneck.run(2.0)
    assert bottleneck.recovery.pto_count > 2
    bottleneck.path.loss = 0.0
    bottleneck.run(3.0)
    assert bottleneck.utilisation(1.0) > 0.95


@REAL
def test_reordering_is_lived_with(congestion: str) -> None:
    bottleneck = Bottleneck(congestion, small(reorder=0.05, reorder_delay=0.005))
    assert bottleneck.utilisation(5.0) > 0.9
    assert bottleneck.spurious > 0
    assert bottleneck.recovery.packet_threshold > 3
    # Once it is known how far the path reorders, hardly anything is taken for lost that is not.
    before = bottleneck.spurious
    bottleneck.run(2.0)
    assert bottleneck.spurious - before < 10


@REAL
def test_the_same_seed_gives_the_same_run(congestion: str) -> None:
    runs = []
    for _ in range(2):
        bottleneck = Bottleneck(congestion, small(loss=0.02), seed=42)
        bottleneck.run(2.0)
        runs.append((bottleneck.sent, bottleneck.lost, bottleneck.delivered, bottleneck.control.congestion_window))
    assert runs[0] == runs[1]


def test_without_congestion_control_the_window_is_no_limit() -> None:
    bottleneck = Bottleneck("none", small(), app_rate=mbit(10))
    assert bottleneck.utilisation(2.0) == pytest.approx(0.5, abs=0.01)
    assert bottleneck.lost == 0
