"""Frames that wait to be sent, and are sent again when lost, as long as they still say something."""

from __future__ import annotations

from collections.abc import Callable

from qtunnel.quic.multipath.frames import Frame, MaxPathId, PathsBlocked, PathStatus, encode_frame

__all__ = ["FrameOutbox"]


class FrameOutbox:
    """In the order they came; of a kind whose newest says all, only the newest.

    is_wanted: asked about each lost frame; one that is not wanted any more is forgotten.
    """

    def __init__(self, is_wanted: Callable[[Frame], bool]) -> None:
        self._is_wanted = is_wanted
        self._waiting: dict[object, Frame] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, frame: Frame) -> None:
        """Have a frame sent."""
        key = _key(frame)
        self._waiting.pop(key, None)  # the newest goes to the end
        self._waiting[key] = frame

    def take(self, room: int) -> list[Frame]:
        """Return the frames that go into one packet with room for so many bytes; they count as sent."""
        taken = []
        for key, frame in list(self._waiting.items()):
            size = len(encode_frame(frame))
            if size > room:
                break
            room -= size
            del self._waiting[key]
            taken.append(frame)
        return taken

    def on_lost(self, frame: Frame) -> None:
        """Send it again, unless it is out of date or a newer one waits."""
        if self._is_wanted(frame):
            self._waiting.setdefault(_key(frame), frame)

    def forget(self, is_old: Callable[[Frame], bool]) -> None:
        """Take out what waits and is of no use any more."""
        self._waiting = {key: frame for key, frame in self._waiting.items() if not is_old(frame)}


def _key(frame: Frame) -> object:
    if isinstance(frame, MaxPathId | PathsBlocked):
        return type(frame)
    if isinstance(frame, PathStatus):
        return (PathStatus, frame.path_id)
    return (type(frame), frame)
