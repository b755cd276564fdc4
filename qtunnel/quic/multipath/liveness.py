"""Which paths answer, when a link may go silent without losing its carrier (RFC 10069 §3.3, §5.9).

A path is put aside when it has answered nothing for a few round trips although it was asked, and another path was
heard from meanwhile. That second half is what tells a dead path from a dead server, a quiet peer or a stall
of our own: in those cases no path is heard from, and none is put aside. Time in which we did not run is taken off
by excuse(), and in a wake-up everything received counts before silence is judged.

A path put aside is asked with PINGs, ever less often, and taken back when it answers; one that fails again soon
has to answer several times in a row first. One that stays silent for GIVE_UP is to be abandoned, so that it
can be opened anew with a socket of its own: a NAT may have forgotten the old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["GIVE_UP", "Liveness", "PathLiveness", "Verdict", "silence_limit"]

SILENT_RTTS: Final = 3
MIN_SILENCE: Final = 0.05
MAX_SILENCE: Final = 0.8
"""Bounds of the silence that puts a path aside, seconds; the upper one only where the RTT allows it."""
MAX_PROBE_INTERVAL: Final = 1.0
RELAPSE: Final = 10.0
"""A path that is put aside again within so many seconds has to answer twice as often as before."""
MAX_ANSWERS: Final = 8
GIVE_UP: Final = 15.0
"""Seconds without an answer after which a path is given up."""


class Verdict(Enum):
    """What has changed about a path."""

    SILENT = "silent"
    ANSWERS = "answers"
    GIVEN_UP = "given-up"


@dataclass(slots=True)
class PathLiveness:
    """Of one path; times in seconds. asked_since: when the oldest packet was sent that nothing was heard after."""

    asked_since: float | None = None
    heard_at: float = float("-inf")
    is_aside: bool = False
    given_up: bool = False
    aside_since: float = 0.0
    returned_at: float = float("-inf")
    answers_wanted: int = 1
    answers: int = 0
    probe_at: float = 0.0
    probe_interval: float = 0.0


def silence_limit(smoothed_rtt: float, pto: float) -> float:
    """Return how long a path may be silent, seconds: a few round trips, and never less than a PTO."""
    wanted = max(SILENT_RTTS * smoothed_rtt, pto, MIN_SILENCE)
    return min(wanted, max(MAX_SILENCE, 2 * smoothed_rtt))


class Liveness:
    """All paths of a connection that are validated. Tell it before judging: first what came, then handle_timer."""

    def __init__(self) -> None:
        self.paths: dict[int, PathLiveness] = {}
        self._limits: dict[int, float] = {}

    def add(self, path_id: int, now: float, *, limit: float) -> None:
        """Watch a path. limit: of silence_limit."""
        self.paths[path_id] = PathLiveness(heard_at=now)
        self._limits[path_id] = limit

    def remove(self, path_id: int) -> None:
        """Watch a path no longer."""
        self.paths.pop(path_id, None)
        self._limits.pop(path_id, None)

    def set_limit(self, path_id: int, limit: float) -> None:
        """Follow the path's RTT; seconds."""
        if path_id in self._limits:
            self._limits[path_id] = limit

    def is_aside(self, path_id: int) -> bool:
        """Say whether a path is put aside."""
        path = self.paths.get(path_id)
        return path is not None and path.is_aside

    def on_asked(self, path_id: int, now: float) -> None:
        """Note an ack-eliciting packet sent on a path."""
        path = self.paths.get(path_id)
        if path is not None and path.asked_since is None:
            path.asked_since = now

    def on_heard(self, path_id: int, now: float) -> Verdict | None:
        """Note that a path works: its packets were acknowledged, or one came in by it that is new.

        Returns ANSWERS when it is taken back. An acknowledgment counts if it came by whichever path.
        """
        path = self.paths.get(path_id)
        if path is None or path.given_up:
            return None
        path.heard_at = now
        path.asked_since = None
        if not path.is_aside:
            return None
        path.answers += 1
        path.probe_at = now  # the next question at once, if one more answer is wanted
        path.probe_interval = 0.0
        if path.answers < path.answers_wanted:
            return None
        path.is_aside = False
        path.returned_at = now
        return Verdict.ANSWERS

    def probes_to_send(self, now: float) -> list[int]:
        """Return the paths put aside on which a PING is due now; sending it is the caller's part."""
        due = []
        for path_id, path in self.paths.items():
            if path.is_aside and not path.given_up and now >= path.probe_at:
                path.probe_interval = min(MAX_PROBE_INTERVAL, 2 * path.probe_interval or self._limits[path_id])
                path.probe_at = now + path.probe_interval
                due.append(path_id)
        return due

    def get_timer(self) -> float | None:
        """Return when handle_timer or probes_to_send has something to do."""
        times = []
        for path_id, path in self.paths.items():
            if path.given_up:
                continue
            if path.is_aside:
                times += [path.probe_at, path.aside_since + GIVE_UP]
            elif path.asked_since is not None:
                limit = self._limits[path_id]
                if self._is_another_heard(path_id, path.asked_since + limit / 2):
                    times.append(path.asked_since + limit)
        return min(times, default=None)

    def handle_timer(self, now: float) -> list[tuple[int, Verdict]]:
        """Judge; return what has changed."""
        changes = []
        for path_id, path in self.paths.items():
            if path.given_up:
                continue
            if path.is_aside:
                if now >= path.aside_since + GIVE_UP and self._is_another_heard(path_id, path.aside_since):
                    path.given_up = True
                    changes.append((path_id, Verdict.GIVEN_UP))
                continue
            asked, limit = path.asked_since, self._limits[path_id]
            if asked is None or now < asked + limit:
                continue
            # In the second half of the silence: before it, both may have been cut off by one cause a moment apart.
            if self._is_another_heard(path_id, asked + limit / 2):
                self._put_aside(path, now)
                changes.append((path_id, Verdict.SILENT))
        return changes

    def excuse(self, duration: float, now: float) -> None:
        """Take time in which we did not run off every silence, seconds."""
        for path in self.paths.values():
            if path.asked_since is not None:
                path.asked_since = min(now, path.asked_since + duration)
            if path.is_aside:
                path.aside_since = min(now, path.aside_since + duration)

    def _put_aside(self, path: PathLiveness, now: float) -> None:
        relapsed = now - path.returned_at < RELAPSE
        path.answers_wanted = min(MAX_ANSWERS, 2 * path.answers_wanted) if relapsed else 1
        path.is_aside = True
        path.aside_since = now
        path.answers = 0
        path.probe_at = now
        path.probe_interval = 0.0

    def _is_another_heard(self, path_id: int, since: float) -> bool:
        """Say whether another path, not put aside, answered after that time."""
        for other_id, other in self.paths.items():
            if other_id != path_id and not other.is_aside and other.heard_at > since:
                return True
        return False
