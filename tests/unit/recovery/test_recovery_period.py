"""qtunnel.recovery.recovery_period."""

from __future__ import annotations

from qtunnel.recovery.recovery_period import RecoveryPeriod


def test_losses_of_one_flight_are_one_period() -> None:
    period = RecoveryPeriod()
    assert period.begin(48, 97)
    assert not period.begin(60, 120)
    assert not period.begin(97, 120)
    assert period.begin(98, 120)


def test_when_all_of_it_arrives_a_period_is_undone() -> None:
    period = RecoveryPeriod()
    period.begin(10, 20)
    period.add_lost(8, 2)
    period.add_lost(12, 1)
    assert not period.add_spurious(8, 2)
    assert period.add_spurious(12, 1)
    assert period.end == -1
    assert not period.add_spurious(12, 1)


def test_what_arrives_of_an_earlier_period_does_not_undo_this_one() -> None:
    period = RecoveryPeriod()
    period.begin(10, 20)
    period.add_lost(10, 1)
    period.begin(25, 30)
    period.add_lost(25, 1)
    assert not period.add_spurious(10, 1)
    assert period.add_spurious(25, 1)
    assert period.end == 20


def test_a_period_that_is_real_is_not_undone() -> None:
    period = RecoveryPeriod()
    period.begin(10, 20)
    period.add_lost(10, 1)
    period.forbid_undo()
    period.add_lost(11, 1)
    assert not period.add_spurious(10, 1)


def test_after_persistent_congestion_anything_acknowledged_lets_the_window_grow() -> None:
    period = RecoveryPeriod()
    period.begin(10, 20)
    period.add_lost(10, 1)
    period.let_window_grow()
    assert period.end == -1
    # A loss of the same flight is a period of its own then, and 10 is no member of it.
    assert period.begin(15, 30)
    period.add_lost(15, 1)
    assert not period.add_spurious(10, 1)
