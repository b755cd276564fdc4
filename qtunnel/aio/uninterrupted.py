"""Cleaning up to the end, whoever cancels meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["uninterrupted"]


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end; a cancellation that comes meanwhile is raised after it.

    asyncio.shield alone would return at once and leave the work running behind its caller's back.
    """
    task = asyncio.get_running_loop().create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
            if task.cancelled():
                break
        except Exception:
            break  # raised by result() below
    if not task.cancelled():
        task.result()
    if cancelled:
        raise asyncio.CancelledError
