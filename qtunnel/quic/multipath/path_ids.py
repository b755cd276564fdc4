"""Which path ids may be used, and how they never run out (RFC 10069 §3.2.1, §4.6, §4.7).

A path id is used once. So that links may come and go for weeks, each id that is gone raises our limit by one: the
peer always has as many ids alive as we offered first. Nothing is kept about those that are gone: they are within
the limit, and not alive.
"""

from __future__ import annotations

from typing import Final

from aioquic.quic.packet import QuicErrorCode

from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.quic.multipath.code_points import MAX_PATH_ID

__all__ = ["MAX_ALIVE", "PathIds"]

MAX_ALIVE: Final = 64
"""Path ids a peer may have at once; each has connection ids of ours."""


class PathIds:
    """Both ends' limits. local_max: what the peer may use, as we announced it; peer_max: what we may use.

    alive: ids within our limit that are not gone. A path id that one end may use and the other not is no use.
    """

    def __init__(self, *, local_max: int, peer_max: int) -> None:
        if not 0 <= local_max < MAX_ALIVE:
            raise LocalProtocolError(f"a limit of {local_max} path ids, 0 to {MAX_ALIVE - 1} are allowed")
        self.local_max = local_max
        self.peer_max = peer_max
        self.alive = set(range(local_max + 1))
        self._initial_peer_max = peer_max
        self._used = {0}

    @property
    def usable_max(self) -> int:
        """The largest path id that both ends allow."""
        return min(self.local_max, self.peer_max)

    def unused(self) -> list[int]:
        """Return ids that may be opened, lowest first."""
        limit = self.usable_max
        return sorted(path_id for path_id in self.alive if path_id <= limit and path_id not in self._used)

    def issuable(self) -> list[int]:
        """Return ids that connection ids may be issued for, lowest first, without holes (RFC 10069 §3.2.1)."""
        limit = self.usable_max
        return sorted(path_id for path_id in self.alive if path_id <= limit)

    def use(self, path_id: int) -> None:
        """Note that a path id is used now, by whichever end; it never is unused again."""
        if path_id not in self.alive:
            raise LocalProtocolError(f"path id {path_id} is gone")
        self._used.add(path_id)

    def is_alive(self, path_id: int) -> bool:
        """Say whether a frame about this id means anything; if not it is to be ignored in silence.

        Raises: PeerProtocolError for an id above what we announced (RFC 10069 §4).
        """
        if path_id > self.local_max:
            raise PeerProtocolError(
                f"path id {path_id}, {self.local_max} is the largest allowed",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )
        return path_id in self.alive

    def retire(self, path_id: int) -> bool:
        """Forget an id for good; return whether the limit rose, which the peer has to be told."""
        if path_id not in self.alive:
            return False
        self.alive.discard(path_id)
        self._used.discard(path_id)
        if self.local_max >= MAX_PATH_ID:
            return False
        self.local_max += 1
        self.alive.add(self.local_max)
        return True

    def on_max_path_id(self, maximum: int) -> bool:
        """Take the peer's MAX_PATH_ID; return whether it raised the limit.

        Raises: PeerProtocolError for one below the transport parameter or above 2^32 - 1 (RFC 10069 §4.6).
        """
        if not self._initial_peer_max <= maximum <= MAX_PATH_ID:
            raise PeerProtocolError(
                f"MAX_PATH_ID {maximum}, the transport parameter was {self._initial_peer_max}",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )
        if maximum <= self.peer_max:
            return False
        self.peer_max = maximum
        return True

    def on_paths_blocked(self, maximum: int, *, is_lenient: bool = False) -> None:
        """Take the peer's PATHS_BLOCKED. It changes nothing: the limit follows the ids that are gone.

        is_lenient: take no offence at a limit we never announced, which some peers name (0006-peer-quirks.md).

        Raises: PeerProtocolError for a limit above ours (RFC 10069 §4.7).
        """
        if maximum > self.local_max and not is_lenient:
            raise PeerProtocolError(
                f"PATHS_BLOCKED at {maximum}, {self.local_max} is allowed",
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
            )
