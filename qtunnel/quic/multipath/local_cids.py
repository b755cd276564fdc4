"""Connection ids that we issue, for each path id (RFC 10069 §3.2, RFC 9000 §5.1).

Every path id that may be opened has SPARE ids: one to open it with, one to move to. What the peer retires is
replaced, so a path never runs out of them. What we keep is bounded by the path ids alive and by the limits of
both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aioquic.quic.packet import QuicErrorCode

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.multipath.frames import NewConnectionId

__all__ = ["SPARE", "LocalCids"]

SPARE: Final = 2
"""Ids issued for each path, not more than the peer's active_connection_id_limit, which is at least 2."""


@dataclass(slots=True)
class _PathCids:
    next_sequence: int = 0
    active: dict[int, bytes] = field(default_factory=dict)  # by sequence number


class LocalCids:
    """new_cid: returns one unique among all that share the socket. reset_token: its stateless reset token.

    peer_limit: the peer's active_connection_id_limit, which holds for each path (RFC 10069 §2.2).
    on_retired: told each id that is no longer the connection's.
    """

    def __init__(
        self,
        *,
        new_cid: Callable[[], bytes],
        reset_token: Callable[[bytes], bytes],
        peer_limit: int,
        on_retired: Callable[[bytes], None],
    ) -> None:
        self.path_of: dict[bytes, int] = {}
        """The path of each id we may be spoken to by."""
        self._new_cid = new_cid
        self._reset_token = reset_token
        self._on_retired = on_retired
        self._wanted = min(SPARE, peer_limit)
        self._paths: dict[int, _PathCids] = {}

    def adopt(self, path_id: int, issued: Iterable[tuple[int, bytes]]) -> None:
        """Take over ids that were issued already, as (sequence number, id): those of path 0."""
        path = self._paths.setdefault(path_id, _PathCids())
        for sequence, cid in issued:
            path.active[sequence] = cid
            path.next_sequence = max(path.next_sequence, sequence + 1)
            self.path_of[cid] = path_id

    def replenish(self, path_ids: Iterable[int]) -> Iterator[NewConnectionId]:
        """Issue what is missing for these path ids, lowest path id first; every frame is to be sent, and again."""
        for path_id in path_ids:
            path = self._paths.setdefault(path_id, _PathCids())
            while len(path.active) < self._wanted:
                cid = self._new_cid()
                while cid in self.path_of:
                    cid = self._new_cid()
                sequence = path.next_sequence
                path.next_sequence += 1
                path.active[sequence] = cid
                self.path_of[cid] = path_id
                yield NewConnectionId(path_id, sequence, 0, cid, self._reset_token(cid))

    def on_retire(self, path_id: int, sequence: int, *, received_by: bytes) -> None:
        """Forget an id the peer will not use any more. received_by: the id its packet was addressed to.

        Raises: PeerProtocolError for an id we did not issue, or the one it was told by (RFC 9000 §19.16).
        """
        path = self._paths.get(path_id)
        if path is None or sequence >= path.next_sequence:
            raise PeerProtocolError(
                f"retired connection id {sequence} of path {path_id}, which was not issued",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )
        cid = path.active.get(sequence)
        if cid is None:
            return  # a frame that came twice
        if cid == received_by:
            raise PeerProtocolError(
                f"retired connection id {sequence} of path {path_id} in a packet to it",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )
        del path.active[sequence]
        self._forget(cid)

    def check_blocked(self, path_id: int, next_sequence: int) -> None:
        """Take PATH_CIDS_BLOCKED. It changes nothing, as what is missing is issued anyway.

        Raises: PeerProtocolError for a sequence number that is still to come (RFC 10069 §4.7).
        """
        path = self._paths.get(path_id)
        expected = 0 if path is None else path.next_sequence
        if next_sequence > expected:
            raise PeerProtocolError(
                f"PATH_CIDS_BLOCKED expects connection id {next_sequence} of path {path_id}, {expected} is next",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )

    def has_issued(self, path_id: int) -> bool:
        """Say whether the peer has an id to speak to us by on this path."""
        path = self._paths.get(path_id)
        return path is not None and bool(path.active)

    def is_active(self, frame: NewConnectionId) -> bool:
        """Say whether what a frame issued is still good, so that the frame is sent again if it was lost."""
        path = self._paths.get(frame.path_id)
        return path is not None and frame.sequence in path.active

    def drop_path(self, path_id: int) -> None:
        """Forget all ids of a path that is gone."""
        path = self._paths.pop(path_id, None)
        for cid in path.active.values() if path is not None else ():
            self._forget(cid)

    def _forget(self, cid: bytes) -> None:
        del self.path_of[cid]
        self._on_retired(cid)
