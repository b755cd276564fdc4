"""How each end wants a path used: PATH_STATUS_AVAILABLE and PATH_STATUS_BACKUP (RFC 10069 §3.3, §4.3).

Each end says what it wants of the other's sending. Both kinds of frame share one row of sequence numbers for each
path, as they may overtake each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from qtunnel.quic.multipath.frames import PathStatus

__all__ = ["PathPreference"]


@dataclass(slots=True)
class PathPreference:
    """Of one path. is_backup_here: what we want; is_backup_there: what the peer wants."""

    path_id: int
    is_backup_here: bool = False
    is_backup_there: bool = False
    _sent: int = 0
    _seen: int = -1

    def prefer(self, is_backup: bool) -> PathStatus | None:
        """Want the path so from now on; return the frame that says so, None if the peer was told already."""
        if self._sent and is_backup == self.is_backup_here:
            return None
        self.is_backup_here = is_backup
        self._sent += 1  # from 1 on: some peers ignore 0
        return PathStatus(self.path_id, self._sent, is_backup)

    def repeat(self) -> PathStatus:
        """Return the present wish once more, as news: some peers drop what comes before the path is open."""
        self._sent += 1
        return PathStatus(self.path_id, self._sent, self.is_backup_here)

    def receive(self, frame: PathStatus) -> bool:
        """Take the peer's wish; return whether it was new."""
        if frame.sequence <= self._seen:
            return False
        self._seen = frame.sequence
        self.is_backup_there = frame.is_backup
        return True

    def is_newest(self, frame: PathStatus) -> bool:
        """Say whether a frame of ours is the last one, so that it is sent again if it was lost."""
        return frame.sequence == self._sent
