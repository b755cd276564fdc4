"""Path ids and connection ids of both ends, and the frames that keep them in step (RFC 10069 §3.2).

Both ends can open paths as long as the other plays along: what is used up or gone is issued anew, and a limit of
ours that was reached is raised. What is kept is bounded by the path ids alive.
"""

from __future__ import annotations

from collections.abc import Callable

from qtunnel.quic.multipath.frames import (
    Frame,
    MaxPathId,
    NewConnectionId,
    PathAbandon,
    PathCidsBlocked,
    PathsBlocked,
    PathStatus,
    RetireConnectionId,
)
from qtunnel.quic.multipath.local_cids import LocalCids
from qtunnel.quic.multipath.outbox import FrameOutbox
from qtunnel.quic.multipath.path_ids import PathIds
from qtunnel.quic.multipath.peer_cids import PeerCids

__all__ = ["BookFrame", "PathBooks"]

BookFrame = MaxPathId | PathsBlocked | PathCidsBlocked | NewConnectionId | RetireConnectionId
"""What is about the books alone."""


class PathBooks:
    """is_newest: whether a PATH_STATUS frame is the last one of its path. is_lenient: see PathIds."""

    def __init__(
        self,
        *,
        ids: PathIds,
        local_cids: LocalCids,
        peer_cids: PeerCids,
        is_newest: Callable[[PathStatus], bool],
        is_lenient: bool = False,
    ) -> None:
        self.ids = ids
        self.local_cids = local_cids
        self.peer_cids = peer_cids
        self.outbox = FrameOutbox(self.is_wanted)
        self._is_newest = is_newest
        self._is_lenient = is_lenient
        self._draining: set[int] = set()
        self._is_open_wanted = False

    def take_unused(self) -> int | None:
        """Use a path id that both ends have issued connection ids for; None, and the peer is told, without one."""
        unused = self.ids.unused()
        for path_id in unused:
            if self.peer_cids.has_unused(path_id) and self.local_cids.has_issued(path_id):
                self._is_open_wanted = False
                self.ids.use(path_id)
                return path_id
        self._is_open_wanted = True
        self.outbox.put(self.peer_cids.blocked(unused[0]) if unused else PathsBlocked(self.ids.peer_max))
        return None

    def can_open_again(self) -> bool:
        """Say, once, that a path id has become available since take_unused() found none."""
        if not self._is_open_wanted or not any(map(self.peer_cids.has_unused, self.ids.unused())):
            return False
        self._is_open_wanted = False
        return True

    def receive(self, frame: BookFrame, received_by: bytes) -> None:
        """Take a frame about ids that are alive. received_by: the id its packet was addressed to.

        Raises: PeerProtocolError: close the connection with its code.
        """
        if isinstance(frame, MaxPathId):
            if self.ids.on_max_path_id(frame.maximum):
                self.replenish()
        elif isinstance(frame, PathsBlocked):
            self.ids.on_paths_blocked(frame.maximum, is_lenient=self._is_lenient)
        elif frame.path_id in self._draining:
            return
        elif isinstance(frame, NewConnectionId):
            for retire in self.peer_cids.receive(frame):
                self.outbox.put(retire)
        elif isinstance(frame, RetireConnectionId):
            self.local_cids.on_retire(frame.path_id, frame.sequence, received_by=received_by)
            self.replenish()
        else:
            self.local_cids.check_blocked(frame.path_id, frame.next_sequence)

    def replenish(self) -> None:
        """Issue connection ids for every path that is open or may be opened."""
        wanted = [path_id for path_id in self.ids.issuable() if path_id not in self._draining]
        for frame in self.local_cids.replenish(wanted):
            self.outbox.put(frame)

    def stop(self, path_id: int, error: int) -> None:
        """Abandon a path: the peer's connection ids for it count as retired (RFC 10069 §3.4)."""
        self._draining.add(path_id)
        self.peer_cids.drop_path(path_id)
        self.outbox.forget(lambda frame: not self.is_wanted(frame))
        self.outbox.put(PathAbandon(path_id, error))

    def close(self, path_id: int) -> None:
        """Forget a path for good, and give the peer another id for it."""
        self._draining.discard(path_id)
        self.local_cids.drop_path(path_id)
        if self.ids.retire(path_id):
            self.outbox.put(MaxPathId(self.ids.local_max))
        self.replenish()

    def on_acked(self, frame: Frame) -> None:
        """Note that the peer has a frame."""
        if isinstance(frame, RetireConnectionId):
            self.peer_cids.on_retire_acknowledged(frame)

    def is_wanted(self, frame: Frame) -> bool:
        """Say whether a frame still says something that the peer should know."""
        if isinstance(frame, MaxPathId):
            return frame.maximum == self.ids.local_max
        if isinstance(frame, PathsBlocked):
            return frame.maximum == self.ids.peer_max and self._is_open_wanted
        if isinstance(frame, PathAbandon):
            return True
        if frame.path_id not in self.ids.alive or frame.path_id in self._draining:
            return False
        if isinstance(frame, NewConnectionId):
            return self.local_cids.is_active(frame)
        if isinstance(frame, PathStatus):
            return self._is_newest(frame)
        if isinstance(frame, PathCidsBlocked):
            return not self.peer_cids.has_unused(frame.path_id)
        return True
