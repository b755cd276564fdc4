"""Datagrams as one wake-up reads them: back to back in one buffer, those of one size and one sender on one pile.

A pile of a few is a list, a pile of many a run (qtunnel/packet_run.py), whether the kernel had coalesced them
(UDP_GRO) or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtunnel.burst import Received
from qtunnel.packet_run import PacketRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qtunnel.burst import Address
    from qtunnel.linux.cmsg import AncillaryParser
    from qtunnel.packet_run import Packets

__all__ = ["DatagramPile", "as_received"]

MIN_RUN: Final = 8
"""Datagrams that stay together; of fewer each is handled alone anyway."""


class DatagramPile:
    """Datagrams of one size, the last perhaps shorter, from byte `start` of a buffer on.

    segment: bytes of each. size: bytes of all. local: the address they were sent to, packed, or None.
    """

    __slots__ = ("ecn", "local", "remote", "segment", "size", "start")

    def __init__(self, start: int, segment: int, remote: Address, ancillary: AncillaryParser) -> None:
        self.start = start
        self.segment = segment
        self.size = 0
        self.remote = remote
        self.local = ancillary.local
        self.ecn = ancillary.ecn

    def takes(self, size: int, segment: int, remote: Address, ancillary: AncillaryParser) -> bool:
        """Return whether size bytes, in datagrams of segment bytes, go on top: the last so far was not shorter."""
        return (
            size > 0
            and (segment == self.segment or size < self.segment)
            and not self.size % self.segment
            and remote == self.remote
            and ancillary.local == self.local
            and ancillary.ecn == self.ecn
        )

    def datagrams(self, buffer: memoryview) -> list[Packets]:
        """Return a copy of the datagrams, in groups."""
        start, segment, end = self.start, self.segment, self.start + self.size
        if not segment:
            return [[b""]]
        whole = self.size // segment
        if whole < MIN_RUN:
            return [[bytes(buffer[at : min(at + segment, end)]) for at in range(start, end, segment)]]
        full = start + whole * segment
        groups: list[Packets] = [PacketRun(bytes(buffer[start:full]), segment, whole)]
        if full < end:
            groups.append([bytes(buffer[full:end])])
        return groups


def as_received(
    piles: Iterable[DatagramPile], buffer: memoryview, name: Callable[[bytes], str], path_id: int
) -> list[Received]:
    """Return the datagrams of piles, in order; neighbours of one sender that are lists share a Received.

    name: makes text of a packed address.
    """
    found: list[Received] = []
    for pile in piles:
        local = None if pile.local is None else name(pile.local)
        for group in pile.datagrams(buffer):
            last = found[-1] if found else None
            if (
                last is not None
                and isinstance(group, list)
                and isinstance(last.datagrams, list)
                and (last.remote, last.local, last.ecn) == (pile.remote, local, pile.ecn)
            ):
                last.datagrams += group
            else:
                found.append(Received(group, pile.remote, local, pile.ecn, path_id))
    return found
