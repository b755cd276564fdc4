"""HTTP Datagrams that overtook the headers of their stream: kept a moment, then dropped (RFC 9297 §2.1).

QUIC does not keep DATAGRAM frames behind the stream frames sent before them, so the first packets of a tunnel may
come before its request or response was read.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from qtunnel.drops import DropCounts, DropReason

__all__ = ["MAX_EARLY", "EarlyDatagrams"]

MAX_EARLY: Final = 64
"""Datagrams kept per connection at most: a burst."""


class EarlyDatagrams:
    """Bounded and short-lived. drops: where what nobody fetched in time is counted."""

    def __init__(self, drops: DropCounts) -> None:
        self._drops = drops
        self._kept: deque[tuple[float, int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, stream_id: int, payload: bytes, *, until: float) -> None:
        """Keep one payload; if there are too many, it is dropped."""
        if len(self._kept) >= MAX_EARLY:
            self._drops[DropReason.UNKNOWN_STREAM] += 1
            return
        self._kept.append((until, stream_id, payload))

    def has(self, stream_id: int) -> bool:
        """Return whether any payload of a stream is kept."""
        return any(owner == stream_id for _, owner, _ in self._kept)

    def take(self, stream_id: int) -> list[bytes]:
        """Return the payloads of a stream, in order, and keep them no longer."""
        taken = [payload for _, owner, payload in self._kept if owner == stream_id]
        if taken:
            self._kept = deque(entry for entry in self._kept if entry[1] != stream_id)
        return taken

    def forget(self, stream_id: int) -> None:
        """Drop the payloads of a stream that ended."""
        dropped = len(self.take(stream_id))
        if dropped:
            self._drops[DropReason.STREAM_CLOSED] += dropped

    def drop_late(self, now: float) -> None:
        """Drop what nobody fetched in time."""
        while self._kept and self._kept[0][0] <= now:
            self._kept.popleft()
            self._drops[DropReason.UNKNOWN_STREAM] += 1

    def get_timer(self) -> float | None:
        """Return when drop_late has something to do next."""
        return self._kept[0][0] if self._kept else None
