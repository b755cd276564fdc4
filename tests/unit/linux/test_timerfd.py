"""The kernel's timer: when it comes, and when it does not."""

from __future__ import annotations

import os
import select
import time

import pytest

from qtunnel.linux.timerfd import TimerFd


def wait(timer: TimerFd, seconds: float) -> bool:
    """Return whether the timer came within so many seconds."""
    poll = select.poll()
    poll.register(timer.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def test_it_comes_never_early_and_not_a_millisecond_grid() -> None:
    timer = TimerFd()
    late = []
    for _ in range(20):
        due = time.monotonic() + 0.0003
        timer.set(due)
        assert wait(timer, 10)
        late.append(time.monotonic() - due)
        timer.clear()
    timer.close()
    assert min(late) >= 0
    assert min(late) < 0.0005  # a grid of milliseconds would make every one later


def test_a_time_that_is_past_comes_at_once() -> None:
    timer = TimerFd()
    for at in (0.0, time.monotonic() - 5):
        timer.set(at)
        assert wait(timer, 10)
        timer.clear()
        assert not wait(timer, 0)
    timer.close()


def test_none_stops_it_and_a_later_time_puts_it_off() -> None:
    timer = TimerFd()
    timer.set(time.monotonic() + 0.001)
    timer.set(None)
    assert not wait(timer, 0.02)
    timer.set(time.monotonic() + 0.001)
    timer.set(time.monotonic() + 60)
    assert not wait(timer, 0.02)
    timer.clear()
    timer.close()


def test_closed_twice_and_no_descriptors_left(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = TimerFd()
    timer.close()
    timer.close()
    assert timer.fileno() == -1
    with pytest.raises(OSError, match=os.strerror(9)):
        timer.set(1.0)
