"""What tests of a session have in common, whichever rules they check."""

from __future__ import annotations

from qtunnel.masque.events import SessionEvent
from qtunnel.masque.session import Session


def taken(session: Session) -> list[SessionEvent]:
    """Return the events a session has, which are then no longer there."""
    events = []
    while (event := session.next_event()) is not None:
        events.append(event)
    return events
