"""The host's links, addresses and routes, followed from the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from qtunnel.linux.links import LinkFollower

__all__ = ["link_changes"]

SETTLE: Final = 0.05
"""Seconds to let changes that come together, such as an address and its routes, be one."""


async def link_changes(follower: LinkFollower) -> AsyncGenerator[None]:
    """Yield after each group of changes; follower.addresses is up to date then. Runs until cancelled."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_reader(follower.fileno(), changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            if not follower.read():
                continue
            await asyncio.sleep(SETTLE)
            follower.read()
            follower.refresh_addresses()
            yield
    finally:
        loop.remove_reader(follower.fileno())
