"""Virtual time: a clock that stands still until it is told to go to the next thing that happens."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

START = 1000.0
"""Not zero, so that code which takes 0 for "never" or "long ago" is found out. Seconds."""


@dataclass(order=True, slots=True)
class Alarm:
    """Something that happens at a time. cancel() makes it not happen."""

    when: float
    order: int
    action: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.action = None


class VirtualClock:
    """Time in seconds and the list of what is going to happen.

    Two things due at the same time happen in the order they were asked for, so a run is the same every time.
    """

    def __init__(self, now: float = START) -> None:
        self.now = now
        self._alarms: list[Alarm] = []
        self._order = 0

    def call_at(self, when: float, action: Callable[[], None]) -> Alarm:
        """Run action when the clock gets to `when`, or at once in the next step if that has passed."""
        self._order += 1
        alarm = Alarm(max(when, self.now), self._order, action)
        heapq.heappush(self._alarms, alarm)
        return alarm

    def next_time(self) -> float | None:
        """Return when the next thing happens, or None if nothing will."""
        while self._alarms and self._alarms[0].action is None:
            heapq.heappop(self._alarms)
        return self._alarms[0].when if self._alarms else None

    def step(self) -> bool:
        """Go to the next thing and let it happen. Return False if there is none."""
        when = self.next_time()
        if when is None:
            return False
        alarm = heapq.heappop(self._alarms)
        self.now = when
        action, alarm.action = alarm.action, None
        if action is not None:
            action()
        return True

    def run_until(self, when: float) -> None:
        """Let everything due up to and including `when` happen; the clock then shows `when`."""
        while (following := self.next_time()) is not None and following <= when:
            self.step()
        self.now = max(self.now, when)
