"""Connection ids the peer issued, for each path id: which one is in use, which are left (RFC 10069 §3.2).

A peer issues sequence numbers without holes, so that all numbers from the lowest one not retired up to the highest
one seen count as active, whether their frames arrived or not. That bounds what is kept, whatever comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aioquic.quic.packet import QuicErrorCode

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.multipath.frames import NewConnectionId, PathCidsBlocked, RetireConnectionId

__all__ = ["PeerCids"]

MAX_UNACKNOWLEDGED: Final = 4
"""Times the limit: RETIRE_CONNECTION_ID frames of one path that may wait for their acknowledgment
(RFC 9000 §5.1.2)."""


@dataclass(slots=True)
class _PathCids:
    available: dict[int, NewConnectionId] = field(default_factory=dict)  # by sequence number; unused ones
    current: NewConnectionId | None = None
    floor: int = 0  # all below are retired
    retired: set[int] = field(default_factory=set)  # at or above the floor
    end: int = 0  # one above the highest sequence number seen
    unacknowledged: set[int] = field(default_factory=set)

    def active(self) -> int:
        return self.end - self.floor - len(self.retired)

    def known(self, sequence: int) -> NewConnectionId | None:
        if self.current is not None and self.current.sequence == sequence:
            return self.current
        return self.available.get(sequence)

    def retire(self, sequence: int) -> bool:
        if sequence < self.floor or sequence in self.retired:
            return False
        self.retired.add(sequence)
        while self.floor in self.retired:
            self.retired.discard(self.floor)
            self.floor += 1
        self.end = max(self.end, self.floor)
        self.unacknowledged.add(sequence)
        return True


class PeerCids:
    """limit: our active_connection_id_limit, for each path."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._paths: dict[int, _PathCids] = {}
        self._places: dict[bytes, tuple[int, int]] = {}

    def receive(self, frame: NewConnectionId) -> list[RetireConnectionId]:
        """Take an id; return what has to be retired for it, frames to be sent, and again.

        Raises: PeerProtocolError for an id at two places, two at one, or too many (RFC 9000 §5.1.1, §19.15).
        """
        path = self._paths.setdefault(frame.path_id, _PathCids())
        place = (frame.path_id, frame.sequence)
        known = path.known(frame.sequence)
        if (known is not None and known[3:] != frame[3:]) or self._places.get(frame.connection_id, place) != place:
            raise PeerProtocolError(
                f"connection id {frame.sequence} of path {frame.path_id} is another than before",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )
        if frame.retire_prior_to - path.floor > MAX_UNACKNOWLEDGED * self._limit:
            raise self._too_many(
                f"connection ids of path {frame.path_id} up to {frame.retire_prior_to} retired at once"
            )
        path.end = max(path.end, frame.sequence + 1)
        retired = self._retire_below(frame.path_id, path, frame.retire_prior_to)
        if known is None and frame.sequence >= path.floor and frame.sequence not in path.retired:
            path.available[frame.sequence] = frame
            self._places[frame.connection_id] = place
        if path.active() > self._limit:
            raise self._too_many(
                f"{path.active()} connection ids of path {frame.path_id}, {self._limit} are allowed"
            )
        if len(path.unacknowledged) > MAX_UNACKNOWLEDGED * self._limit:
            raise self._too_many(f"{len(path.unacknowledged)} retired connection ids without acknowledgment")
        return retired

    def has_unused(self, path_id: int) -> bool:
        """Say whether the peer has issued an id for this path that was never used."""
        path = self._paths.get(path_id)
        return path is not None and bool(path.available)

    def current(self, path_id: int) -> bytes | None:
        """Return the id to address packets of a path with; the first one if none is in use yet."""
        path = self._paths.get(path_id)
        if path is None:
            return None
        if path.current is None:
            self._take_next(path)
        return None if path.current is None else path.current.connection_id

    def change(self, path_id: int) -> RetireConnectionId | PathCidsBlocked:
        """Take another id of the same path, as after a migration (RFC 9000 §9.5).

        Returns the frame that retires the old one; or, if there is no other, PATH_CIDS_BLOCKED, and the old one
        stays in use.
        """
        path = self._paths.setdefault(path_id, _PathCids())
        if path.current is None:
            self._take_next(path)
        old = path.current
        if old is None or not path.available:
            return PathCidsBlocked(path_id, path.end)
        self._take_next(path)
        path.retire(old.sequence)
        del self._places[old.connection_id]
        return RetireConnectionId(path_id, old.sequence)

    def blocked(self, path_id: int) -> PathCidsBlocked:
        """Return the frame that says that no id is left for a path."""
        path = self._paths.get(path_id)
        return PathCidsBlocked(path_id, 0 if path is None else path.end)

    def on_retire_acknowledged(self, frame: RetireConnectionId) -> None:
        """Note that the peer knows of a retired id."""
        path = self._paths.get(frame.path_id)
        if path is not None:
            path.unacknowledged.discard(frame.sequence)

    def reset_tokens(self) -> list[bytes]:
        """Return the stateless reset tokens of ids in use (RFC 9000 §10.3.1)."""
        return [path.current.reset_token for path in self._paths.values() if path.current is not None]

    def drop_path(self, path_id: int) -> None:
        """Retire all ids of a path that is abandoned, without frames (RFC 10069 §3.4)."""
        path = self._paths.pop(path_id, None)
        if path is not None:
            self._places = {cid: place for cid, place in self._places.items() if place[0] != path_id}

    def _retire_below(self, path_id: int, path: _PathCids, bound: int) -> list[RetireConnectionId]:
        retired = []
        for sequence in range(path.floor, min(bound, path.end)):
            known = path.known(sequence)
            if path.retire(sequence):
                retired.append(RetireConnectionId(path_id, sequence))
            if known is not None:
                self._places.pop(known.connection_id, None)
                path.available.pop(sequence, None)
                if path.current is known:
                    path.current = None
        return retired

    def _take_next(self, path: _PathCids) -> None:
        if path.available:
            path.current = path.available.pop(min(path.available))

    def _too_many(self, text: str) -> PeerProtocolError:
        return PeerProtocolError(text, error_code=QuicErrorCode.CONNECTION_ID_LIMIT_ERROR)
