"""From batches to Transmits: runs of equal size to one address become one sendmsg (UDP_SEGMENT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtunnel.burst import Address, Transmit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qtunnel.burst import Received

__all__ = ["Batch", "Edge", "as_transmits", "canonical"]

MAX_SEGMENTS: Final = 64
"""What Linux takes in one UDP_SEGMENT send (UDP_MAX_SEGMENTS before 6.9)."""
MAX_BYTES: Final = 65500
"""An IPv4 UDP payload's limit, less a little."""


@dataclass(slots=True)
class Batch:
    """One datagram, or several of segment_size bytes back to back (the last may be shorter), to one address.

    is_alone: never to be joined with others, as a path MTU probe must not be lost or refused with them.
    """

    data: bytes
    address: Address
    segment_size: int | None = None
    is_alone: bool = False

    def datagrams(self) -> list[bytes]:
        """Return its datagrams."""
        size = self.segment_size or max(1, len(self.data))
        return [self.data[start : start + size] for start in range(0, len(self.data), size)]


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a peer is reached: its address as the socket gave it, the address it speaks to, the path's socket."""

    remote: Address
    local: str | None = None
    path_id: int = 0

    def is_of(self, group: Received) -> bool:
        """Return whether these datagrams came in here."""
        return self.remote == group.remote and self.local == group.local and self.path_id == group.path_id


def canonical(address: Address) -> Address:
    """Return one form for an address, without flow information, and (host, port) where there is no zone.

    Sockets report IPv6 addresses with flow information, scope and sometimes "%zone"; people give them without.
    """
    if len(address) == 2:
        return address
    host, port, _, scope = address
    return (host.partition("%")[0], port, 0, scope) if scope else (host, port)


class _Run:
    """Datagrams that may leave in one Transmit: all of one size to one address, the last may be shorter."""

    __slots__ = ("address", "datagrams", "size", "total")

    def __init__(self, data: bytes, address: Address) -> None:
        self.address = address
        self.datagrams = [data]
        self.size = self.total = len(data)

    def takes(self, data: bytes, address: Address) -> bool:
        return (
            address == self.address
            and len(data) <= self.size
            and len(self.datagrams[-1]) == self.size
            and len(self.datagrams) < MAX_SEGMENTS
            and self.total + len(data) <= MAX_BYTES
        )

    def add(self, data: bytes) -> None:
        self.datagrams.append(data)
        self.total += len(data)

    def transmit(self, edge: Edge) -> Transmit:
        if len(self.datagrams) == 1:
            return Transmit(self.datagrams[0], edge.remote, edge.local, path_id=edge.path_id)
        data = b"".join(self.datagrams)
        return Transmit(data, edge.remote, edge.local, segment_size=self.size, path_id=edge.path_id)


def as_transmits(batches: Iterable[Batch], edges: Mapping[Address, Edge], *, join: bool) -> list[Transmit]:
    """Return Transmits in order. edges: canonical address -> edge.

    join False keeps every datagram a Transmit of its own, as one with a PATH_CHALLENGE has to be. A batch that is
    segmented already stays as it is.
    """
    transmits: list[Transmit] = []
    run: _Run | None = None
    for batch in batches:
        is_joinable = batch.segment_size is None and join and not batch.is_alone
        if is_joinable and run is not None and run.takes(batch.data, batch.address):
            run.add(batch.data)
            continue
        if run is not None:
            transmits.append(run.transmit(edges.get(run.address) or Edge(run.address)))
            run = None
        if is_joinable:
            run = _Run(batch.data, batch.address)
        else:
            edge = edges.get(batch.address) or Edge(batch.address)
            transmits.append(
                Transmit(
                    batch.data, edge.remote, edge.local, segment_size=batch.segment_size, path_id=edge.path_id
                )
            )
    if run is not None:
        transmits.append(run.transmit(edges.get(run.address) or Edge(run.address)))
    return transmits
