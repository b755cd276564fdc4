"""qtunnel.pmtud.standing. Sizes in bytes of UDP payload."""

from __future__ import annotations

import pytest

from qtunnel.pmtud.events import SizeChanged, StateChanged
from qtunnel.pmtud.standing import Standing
from qtunnel.pmtud.states import State, Trigger


class Alone(Standing):
    """With nothing that would decide."""

    __slots__ = ()

    def set_size(self, size: int, now: float) -> None:
        self._set_size(size, now, "because")

    def enter(self, trigger: Trigger, now: float) -> None:
        self._enter(trigger, now)


def test_dpl_09_a_new_size_is_an_event_and_a_sentence() -> None:
    standing = Alone(1200, 4)
    standing.set_size(1472, 5.0)
    assert standing.next_event() == SizeChanged(time=5.0, old=1200, new=1472, reason="because")
    assert (standing.next_event(), standing.size, standing.since) == (None, 1472, 5.0)
    assert standing.why(6.0) == ["1.000 s ago: link MTU 1500 instead of 1228: because"]
    assert standing.story[0].size == 1472


def test_the_same_size_is_no_news() -> None:
    standing = Alone(1200, 4)
    standing.set_size(1200, 5.0)
    assert (standing.next_event(), standing.since, standing.story) == (None, None, ())


def test_states_follow_the_table_and_nothing_else() -> None:
    standing = Alone(1200, 4)
    standing.enter(Trigger.CONFIRMED, 5.0)
    assert standing.next_event() == StateChanged(
        time=5.0, old=State.DISABLED, new=State.BASE, reason="connectivity confirmed"
    )
    with pytest.raises(KeyError):
        standing.enter(Trigger.RAISE_TIMER, 6.0)
    assert standing.state is State.BASE
