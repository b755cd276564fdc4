"""The states of path MTU discovery and what leads from one to another, as a table (RFC 8899 §5.2, figure 5)."""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["TRANSITIONS", "State", "Trigger"]


class State(enum.Enum):
    """Where discovery stands (RFC 8899 §5.2)."""

    DISABLED = "disabled"
    BASE = "base"
    SEARCHING = "searching"
    SEARCH_COMPLETE = "search-complete"
    ERROR = "error"


class Trigger(enum.Enum):
    """What may lead to another state."""

    CONFIRMED = "connectivity confirmed"
    PATH_LOST = "connectivity lost"
    BASE_ACKED = "a probe of the base size arrived"
    BASE_FAILED = "probes of the base size did not arrive"
    SEARCH_ENDED = "the search found its end"
    RAISE_TIMER = "the raise timer expired"
    SIZE_ACKED = "a larger probe arrived late"
    BLACK_HOLE = "packets of the size vanish"


TRANSITIONS: Final[dict[tuple[State, Trigger], State]] = {
    (State.DISABLED, Trigger.CONFIRMED): State.BASE,
    (State.BASE, Trigger.BASE_ACKED): State.SEARCHING,
    (State.BASE, Trigger.BASE_FAILED): State.ERROR,
    (State.ERROR, Trigger.BASE_ACKED): State.SEARCHING,
    (State.SEARCHING, Trigger.SEARCH_ENDED): State.SEARCH_COMPLETE,
    (State.SEARCHING, Trigger.BLACK_HOLE): State.BASE,
    (State.SEARCH_COMPLETE, Trigger.RAISE_TIMER): State.SEARCHING,
    (State.SEARCH_COMPLETE, Trigger.SIZE_ACKED): State.SEARCHING,
    (State.SEARCH_COMPLETE, Trigger.BLACK_HOLE): State.BASE,
    **{(state, Trigger.PATH_LOST): State.DISABLED for state in State},
}
"""A pair that is not here cannot be: asking for it is an error of ours, not of the network."""
