"""Where the peer of one path is: NAT rebindings and migrations (RFC 9000 §9, RFC 10069 §3.1.2).

A packet of a known path id from another 4-tuple moves that path, and no other. It moves at once, so that a NAT
which forgets costs nothing but the validation; but not more often than MOVES_PER_SECOND, since every move has its
cost and anybody on the way can make one up. An address that was refused for that is taken by a later packet.

Kept are the present address and the last validated one, whatever comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from qtunnel.burst import Address
from qtunnel.quic.multipath.amplification import AddressAllowance
from qtunnel.quic.token_bucket import TokenBucket

__all__ = ["Move", "PathAddress", "PathMigration"]

MOVES_PER_SECOND: Final = 5.0
MOVES_AT_ONCE: Final = 5.0


class Move(Enum):
    """What a packet meant for the path's address."""

    NONE = "none"  # it came from where the path is, or says nothing about that
    PORT = "port"  # same host, other port: what a NAT does; window and RTT stay (RFC 9000 §9.4)
    HOST = "host"  # another host: window and RTT start over
    TOO_OFTEN = "too-often"  # refused for now


@dataclass(slots=True)
class PathAddress:
    """One address of the peer. local: ours that the peer spoke to, where it matters."""

    remote: Address
    allowance: AddressAllowance
    local: str | None = None


class PathMigration:
    """current: where packets of the path go. fallback: the last validated one, while current is not validated."""

    def __init__(self, current: PathAddress) -> None:
        self.current = current
        self.fallback: PathAddress | None = None
        self.moves = 0
        self.refused = 0
        self._rate = TokenBucket(rate=MOVES_PER_SECOND, burst=MOVES_AT_ONCE)

    def on_packet(
        self,
        remote: Address,
        size: int,
        now: float,
        *,
        is_newest: bool,
        is_probing: bool,
        local: str | None = None,
    ) -> Move:
        """Take note of a packet of this path that opened. size: of its datagram, bytes.

        is_newest: its packet number is the largest of the path so far; is_probing: it has probing frames only.
        Only a newest packet that is not probing moves a path (RFC 9000 §9.3). After a move the new address has to
        be validated, unless it is the one we came from, and the old one asked once more (§9.3.3).
        """
        current = self.current
        if remote == current.remote and local == current.local:
            current.allowance.on_received(size)
            return Move.NONE
        if not is_newest or is_probing:
            return Move.NONE
        if not self._rate.allow(now):
            self.refused += 1
            return Move.TOO_OFTEN
        self.moves += 1
        before = self.fallback
        if current.allowance.is_validated:
            self.fallback = current
        if before is not None and before.remote == remote and before.local == local:
            self.current, self.fallback = before, None
        else:
            self.current = PathAddress(remote, AddressAllowance(), local)
        self.current.allowance.on_received(size)
        return Move.PORT if remote[0] == current.remote[0] else Move.HOST

    def on_validated(self) -> None:
        """Note that the present address is the peer's."""
        self.current.allowance.is_validated = True
        self.fallback = None

    def on_validation_failed(self) -> bool:
        """Go back to the last validated address (RFC 9000 §9.3.2); return whether there is one."""
        if self.current.allowance.is_validated:
            return True
        if self.fallback is None:
            return False
        self.current, self.fallback = self.fallback, None
        return True
