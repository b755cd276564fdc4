import itertools

import pytest

from qtunnel.errors import LocalProtocolError
from qtunnel.quic.multipath.path_state import TRANSITIONS, PathEvent, PathState, next_state

ALLOWED = {
    PathState.OPENING: {
        PathEvent.CHALLENGED,
        PathEvent.VALIDATED,
        PathEvent.VALIDATED_AS_BACKUP,
        PathEvent.MADE_BACKUP,
        PathEvent.MADE_AVAILABLE,
        PathEvent.ABANDONED,
    },
    PathState.VALIDATING: {
        PathEvent.CHALLENGED,
        PathEvent.VALIDATED,
        PathEvent.VALIDATED_AS_BACKUP,
        PathEvent.MADE_BACKUP,
        PathEvent.MADE_AVAILABLE,
        PathEvent.ABANDONED,
    },
    PathState.ACTIVE: {PathEvent.MADE_BACKUP, PathEvent.MADE_AVAILABLE, PathEvent.ABANDONED},
    PathState.STANDBY: {PathEvent.MADE_BACKUP, PathEvent.MADE_AVAILABLE, PathEvent.ABANDONED},
    PathState.ABANDONING: {PathEvent.DRAINED},
    PathState.CLOSED: set(),
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PathState, PathEvent)))
def test_every_state_knows_every_event_or_refuses_it(state: PathState, event: PathEvent) -> None:
    if event in ALLOWED[state]:
        assert next_state(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(LocalProtocolError, match=state.value):
        next_state(state, event)


def test_mpq_33_nothing_leads_out_of_closed_and_only_the_end_out_of_abandoning() -> None:
    assert {after for (before, _), after in TRANSITIONS.items() if before is PathState.ABANDONING} == {
        PathState.CLOSED
    }
    assert all(before is not PathState.CLOSED for before, _ in TRANSITIONS)


def test_mpq_18_only_validation_makes_a_path_usable() -> None:
    usable = {PathState.ACTIVE, PathState.STANDBY}
    into = {event for (before, event), after in TRANSITIONS.items() if after in usable and before not in usable}
    assert into == {PathEvent.VALIDATED, PathEvent.VALIDATED_AS_BACKUP}
