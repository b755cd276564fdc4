"""qtunnel.pmtud.raise_timer. Times in seconds."""

from __future__ import annotations

from qtunnel.pmtud.raise_timer import MAX_BACKOFF, RaiseTimer


def test_dpl_21_it_expires_once_after_its_interval() -> None:
    timer = RaiseTimer(600.0)
    assert not timer.take(1e9)
    timer.start(100.0)
    assert [timer.take(699.9), timer.take(700.0), timer.take(800.0)] == [False, True, False]


def test_stopped_it_does_not_expire() -> None:
    timer = RaiseTimer(600.0)
    timer.start(100.0)
    timer.stop()
    assert (timer.due_at, timer.take(1e9)) == (None, False)


def test_dpl_43_where_the_size_had_to_be_lowered_again_soon_it_waits_ever_longer_up_to_a_bound() -> None:
    timer = RaiseTimer(10.0)
    now, waits = 0.0, []
    for _ in range(6):
        timer.on_lowered(now)
        timer.start(now)
        assert timer.due_at is not None
        waits.append(timer.due_at - now)
        now = timer.due_at + 1
    assert waits == [10.0, 20.0, 40.0, 80.0, 80.0, 80.0]
    assert max(waits) == MAX_BACKOFF * 10.0


def test_dpl_43_after_a_long_time_without_it_waits_as_long_as_at_first() -> None:
    timer = RaiseTimer(10.0)
    timer.on_lowered(0.0)
    timer.on_lowered(5.0)
    timer.on_lowered(100.0)
    timer.start(100.0)
    assert timer.due_at == 110.0


def test_a_size_that_was_lowered_stops_it() -> None:
    timer = RaiseTimer(10.0)
    timer.start(0.0)
    timer.on_lowered(1.0)
    assert timer.due_at is None
