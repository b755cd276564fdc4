"""How a command that stays runs: its event loop, its signals, and the lines it prints about what happens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from qtunnel.cli.event_lines import event_line
from qtunnel.cli.output import say

__all__ = ["EventPrinter", "run_until_ended"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LAST_EVENTS_S: Final = 1.0


def run_until_ended(main: Coroutine[Any, Any, None]) -> None:
    """Run main to its end and raise what it raises. SIGINT or SIGTERM cancels it, once: that is a clean end."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run_with_signals(main))


async def _run_with_signals(main: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main)
    is_ending = False

    def on_signal() -> None:
        nonlocal is_ending
        if is_ending:
            say("already ending")  # a second cancel would stop the cleaning up half-way
            return
        is_ending = True
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        await task
    except asyncio.CancelledError:
        if not is_ending:
            raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    if is_ending:
        say("ended")


class EventPrinter:
    """Prints a tunnel's events as lines. Enter it before the tunnel, so that it leaves after the last event."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def follow(self, events: AsyncIterator[object]) -> None:
        """Begin to print; the iterator ends when the tunnel does."""
        self._task = asyncio.create_task(_print(events), name="print events")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=_LAST_EVENTS_S)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def _print(events: AsyncIterator[object]) -> None:
    async for event in events:
        if (line := event_line(event)) is not None:
            say(line)
