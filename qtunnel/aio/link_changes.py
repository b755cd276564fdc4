"""The host's links, addresses and routes, followed from the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Final

from qtunnel.linux.links import LinkFollower

__all__ = ["link_changes"]

logger = logging.getLogger(__name__)

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
            try:
                follower.refresh_addresses()
            except OSError as error:
                logger.warning("cannot read this host's addresses (%s); going on with those known", error.strerror)
            yield
    finally:
        loop.remove_reader(follower.fileno())
