"""qtunnel.pmtud.states."""

from __future__ import annotations

from qtunnel.pmtud.states import TRANSITIONS, State, Trigger


def test_every_state_can_be_left_and_reached() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)


def test_every_trigger_is_used() -> None:
    assert {trigger for _, trigger in TRANSITIONS} == set(Trigger)


def test_dpl_31_any_state_ends_when_connectivity_is_lost() -> None:
    assert all(TRANSITIONS[state, Trigger.PATH_LOST] is State.DISABLED for state in State)


def test_only_a_probe_of_the_base_size_leads_out_of_base_and_error() -> None:
    ways = {pair: to for pair, to in TRANSITIONS.items() if to is State.SEARCHING}
    assert ways[State.BASE, Trigger.BASE_ACKED] is ways[State.ERROR, Trigger.BASE_ACKED] is State.SEARCHING
    assert not any(
        state in (State.BASE, State.ERROR) and trigger is not Trigger.BASE_ACKED for state, trigger in ways
    )
