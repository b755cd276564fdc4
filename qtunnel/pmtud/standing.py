"""Where path MTU discovery stands, and how it came there: its state, the size, what happened, the story."""

from __future__ import annotations

from collections import deque

from qtunnel.pmtud.events import PmtudEvent, SizeChanged, StateChanged
from qtunnel.pmtud.states import TRANSITIONS, State, Trigger
from qtunnel.pmtud.story import Step, Story

__all__ = ["Standing"]


class Standing:
    """The one place where state and size are set; each time an event says so.

    size: PLPMTU, the largest UDP payload ordinary packets may have, bytes. since: from when on; None: from the
    start. state: as RFC 8899 has it.
    """

    __slots__ = ("_events", "_story", "since", "size", "state")

    def __init__(self, size: int, version: int) -> None:
        self._events: deque[PmtudEvent] = deque()
        self._story = Story(version)
        self.size = size
        self.since: float | None = None
        self.state = State.DISABLED

    @property
    def story(self) -> tuple[Step, ...]:
        """What happened last, oldest first, and the size it led to; a bounded record."""
        return self._story.steps

    def why(self, now: float) -> list[str]:
        """Return in sentences how the present size came about, oldest first. They name link MTUs."""
        return self._story.tell(now)

    def next_event(self) -> PmtudEvent | None:
        """Return what happened next, None when that is all."""
        return self._events.popleft() if self._events else None

    def _name(self, size: int) -> str:
        return f"link MTU {self._story.name(size)}"

    def _say(self, text: str, now: float, *events: PmtudEvent) -> None:
        """Tell what happened in the story, and in events."""
        self._story.add(now, self.size, text)
        self._events.extend(events)

    def _set_size(self, size: int, now: float, reason: str) -> None:
        if size == self.size:
            return
        old, self.size, self.since = self.size, size, now
        text = f"{self._name(size)} instead of {self._story.name(old)}: {reason}"
        self._say(text, now, SizeChanged(time=now, old=old, new=size, reason=reason))

    def _enter(self, trigger: Trigger, now: float) -> None:
        old = self.state
        self.state = TRANSITIONS[old, trigger]
        self._events.append(StateChanged(time=now, old=old, new=self.state, reason=trigger.value))
