"""The events of a tunnel for any number of readers, each with its own bounded queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from qtunnel.tunnel.events import TunnelEvent

__all__ = ["EventStream"]

MAX_WAITING: Final = 1024
"""Events kept for a reader that does not read; beyond, its oldest are lost and `lost` counts them."""


class EventStream:
    """Publish to all who subscribed; a subscriber sees what happens after it subscribed, and the end."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[TunnelEvent | None]] = set()
        self._closed = False
        self.lost = 0

    def publish(self, event: TunnelEvent) -> None:
        """Hand one event to every subscriber."""
        for queue in self._queues:
            self._put(queue, event)

    def close(self) -> None:
        """End every subscriber's iteration after what it has not read yet."""
        self._closed = True
        for queue in self._queues:
            self._put(queue, None)

    def subscribe(self) -> AsyncIterator[TunnelEvent]:
        """Return an iterator over the events from now on, also those before its first step."""
        queue: asyncio.Queue[TunnelEvent | None] = asyncio.Queue()
        self._queues.add(queue)
        if self._closed:
            queue.put_nowait(None)
        return self._iterate(queue)

    async def _iterate(self, queue: asyncio.Queue[TunnelEvent | None]) -> AsyncIterator[TunnelEvent]:
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._queues.discard(queue)

    def _put(self, queue: asyncio.Queue[TunnelEvent | None], event: TunnelEvent | None) -> None:
        if queue.qsize() >= MAX_WAITING:
            with suppress(asyncio.QueueEmpty):
                queue.get_nowait()
                self.lost += 1
        queue.put_nowait(event)
