"""Clients that have proved their address and wait for their handshake to begin: first come, first served.

One burst begins a few handshakes only. A client that came back with a Retry token and found no room waits here for
the next call, rather than for its own retransmission, which doubles its time each try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qtunnel.burst import Received

__all__ = ["MAX_WAIT", "MAX_WAITING", "WaitingClients"]

MAX_WAITING: Final = 256
"""Clients at most."""
MAX_DATAGRAMS: Final = 4
"""Kept of one client: its first flight, which a large ClientHello makes two, or the same once more."""
MAX_WAIT: Final = 1.0
"""Seconds; a client that waited longer has sent again, or gone."""


class WaitingClients:
    """Datagrams of clients by the connection id they go to, which the token vouches for."""

    def __init__(self) -> None:
        self._clients: dict[bytes, tuple[float, list[tuple[Received, bytes]]]] = {}
        self._ready_at = 0.0

    def __len__(self) -> int:
        """Return how many clients wait."""
        return len(self._clients)

    def keep(self, destination_cid: bytes, group: Received, data: bytes, now: float) -> bool:
        """Keep a datagram of a client, a new one or one that waits; return whether there was room."""
        self._ready_at = now
        known = self._clients.get(destination_cid)
        if known is None:
            if len(self._clients) >= MAX_WAITING:
                return False
            self._clients[destination_cid] = (now, [(group, data)])
            return True
        datagrams = known[1]
        if len(datagrams) >= MAX_DATAGRAMS:
            return False
        datagrams.append((group, data))
        return True

    def take(self, clients: int, now: float) -> list[tuple[Received, bytes]]:
        """Return the datagrams of the so many clients that came first, and remove them."""
        self._ready_at = now
        first = list(self._clients)[:clients]
        return [each for cid in first for each in self._clients.pop(cid)[1]]

    def drop_late(self, now: float) -> int:
        """Drop clients that waited too long; return the number of their datagrams."""
        late = [cid for cid, (since, _) in self._clients.items() if now - since > MAX_WAIT]
        return sum(len(self._clients.pop(cid)[1]) for cid in late)

    def get_timer(self) -> float | None:
        """Return when the next may be taken: at once, but not before the sockets were read; None: nobody waits."""
        return self._ready_at if self._clients else None
