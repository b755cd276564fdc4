"""qtunnel.recovery.delivery_rate."""

from __future__ import annotations

from qtunnel.recovery.delivery_rate import DeliveryRateSampler


def test_runs_between_two_acks_share_a_snapshot() -> None:
    sampler = DeliveryRateSampler()
    assert sampler.snapshot() is sampler.snapshot()


def test_a_snapshot_has_what_was_delivered_and_lost() -> None:
    sampler = DeliveryRateSampler()
    sampler.on_restart(10.0)
    sampler.on_delivered(2400, 10.0, 10.5)
    sampler.on_lost(1200)
    assert sampler.snapshot() == (2400, 10.5, 10.0, 1200, False)


def test_what_is_sent_after_silence_is_limited_by_the_sender() -> None:
    sampler = DeliveryRateSampler()
    sampler.on_restart(10.0)
    assert sampler.snapshot() == (0, 10.0, 10.0, 0, True)


def test_app_limited_ends_when_what_was_in_flight_is_delivered() -> None:
    sampler = DeliveryRateSampler()
    sampler.on_delivered(1000, 1.0, 1.0)
    sampler.on_app_limited(2400)
    sampler.on_delivered(2400, 1.0, 1.1)
    assert sampler.is_app_limited
    sampler.on_delivered(1, 1.0, 1.2)
    assert not sampler.is_app_limited
    assert sampler.snapshot()[-1] is False


def test_what_arrived_late_is_delivered_too() -> None:
    sampler = DeliveryRateSampler()
    sampler.on_lost(1200)
    assert sampler.snapshot()[0] == 0
    sampler.on_spurious(1200)
    assert sampler.snapshot()[0] == 1200
