"""The life of a path as a table (RFC 10069 §3)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from qtunnel.errors import LocalProtocolError

__all__ = ["TRANSITIONS", "PathEvent", "PathState", "next_state"]


class PathState(Enum):
    """Whether a path is usable is more than its state: see liveness.py."""

    OPENING = "opening"  # has its path id; no packet was sent or received on it yet
    VALIDATING = "validating"  # PATH_CHALLENGE is out; nothing but what validation needs is sent
    ACTIVE = "active"
    STANDBY = "standby"  # validated, for when no active one is left
    ABANDONING = "abandoning"  # nothing is sent on it any more; what arrives is read for 3 PTO
    CLOSED = "closed"


class PathEvent(Enum):
    """What moves a path to another state."""

    CHALLENGED = "a challenge was sent"
    VALIDATED = "the peer answered, or the address was validated before"
    VALIDATED_AS_BACKUP = "the same, and one end wants it as a backup"
    MADE_BACKUP = "one end wants it as a backup"
    MADE_AVAILABLE = "no end wants it as a backup"
    ABANDONED = "PATH_ABANDON was sent or received, or is to be sent as validation failed"
    DRAINED = "3 PTO have passed since"


_OPEN: Final = (PathState.OPENING, PathState.VALIDATING, PathState.ACTIVE, PathState.STANDBY)

TRANSITIONS: Final[dict[tuple[PathState, PathEvent], PathState]] = {
    (PathState.OPENING, PathEvent.CHALLENGED): PathState.VALIDATING,
    (PathState.VALIDATING, PathEvent.CHALLENGED): PathState.VALIDATING,
    **{(state, PathEvent.VALIDATED): PathState.ACTIVE for state in (PathState.OPENING, PathState.VALIDATING)},
    **{
        (state, PathEvent.VALIDATED_AS_BACKUP): PathState.STANDBY
        for state in (PathState.OPENING, PathState.VALIDATING)
    },
    (PathState.ACTIVE, PathEvent.MADE_BACKUP): PathState.STANDBY,
    (PathState.STANDBY, PathEvent.MADE_AVAILABLE): PathState.ACTIVE,
    # Wishes about a path that is not open yet count when it is; those that are fulfilled change nothing.
    **{
        (state, event): state
        for state in (PathState.OPENING, PathState.VALIDATING)
        for event in (PathEvent.MADE_BACKUP, PathEvent.MADE_AVAILABLE)
    },
    (PathState.STANDBY, PathEvent.MADE_BACKUP): PathState.STANDBY,
    (PathState.ACTIVE, PathEvent.MADE_AVAILABLE): PathState.ACTIVE,
    **{(state, PathEvent.ABANDONED): PathState.ABANDONING for state in _OPEN},
    (PathState.ABANDONING, PathEvent.DRAINED): PathState.CLOSED,
}


def next_state(state: PathState, event: PathEvent) -> PathState:
    """Return where an event leads. Raises: LocalProtocolError for one that cannot happen there."""
    following = TRANSITIONS.get((state, event))
    if following is None:
        raise LocalProtocolError(f"a path that is {state.value} cannot be told: {event.value}")
    return following
