"""How packets of each size fare: what tells a path that has become narrower from one that loses packets."""

from __future__ import annotations

from typing import Final

__all__ = ["SMALLEST_CLASS", "SizeCount", "SizeCounts"]

SMALLEST_CLASS: Final = 1200
"""Bytes of UDP payload. Everything up to here is one class: QUIC needs a path that carries it (RFC 9000 §14)."""

MAX_CLASSES: Final = 512


class SizeCount:
    """Packets of one size. newest_acked: when the newest one acknowledged was sent, seconds; None: none yet."""

    __slots__ = ("acked", "lost", "newest_acked", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.acked = 0
        self.lost = 0
        self.newest_acked: float | None = None

    def __repr__(self) -> str:
        return f"<SizeCount sent {self.sent}, acked {self.acked}, lost {self.lost}>"


class SizeCounts(dict[int, SizeCount]):
    """Counts by size class: UDP payload bytes, all up to SMALLEST_CLASS under that number.

    At most MAX_CLASSES: then the half with the fewest packets is forgotten, which an Ethernet's sizes never come
    to. MTU probes are not counted, but for newest_acked: theirs are proofs too.
    """

    __slots__ = ()

    def __missing__(self, size: int) -> SizeCount:
        if size < SMALLEST_CLASS:
            return self[SMALLEST_CLASS]
        if len(self) >= MAX_CLASSES:
            for fewest in sorted(self, key=lambda each: self[each].sent)[: MAX_CLASSES // 2]:
                del self[fewest]
        count = self[size] = SizeCount()
        return count
