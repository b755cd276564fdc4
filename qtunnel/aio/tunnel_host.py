"""What both roles have on their host: the TUN, what was set up around it, and the host's changes."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from qtunnel.aio.link_changes import link_changes
from qtunnel.config import HostConfig, IPAddress
from qtunnel.linux.host import HostSetup
from qtunnel.linux.links import LinkFollower, check_tun_is_there
from qtunnel.linux.tun import Tun
from qtunnel.state.paths import runtime_directory

__all__ = ["TunnelHost", "new_tun"]


@asynccontextmanager
async def new_tun(config: HostConfig, **settings: Any) -> AsyncIterator[tuple[Tun, HostSetup]]:
    """Make the TUN for the block to set up; an error in the block undoes it all. settings: of HostSetup.open.

    Raises: SystemSetupError.
    """
    tun = Tun.open(config.tun_name, offload=config.tun_offload)
    setup: HostSetup | None = None
    try:
        setup = await HostSetup.open(tun.name, journal=runtime_directory(os.environ), **settings)
        yield tun, setup
    except BaseException:
        if setup is not None:
            await setup.undo_all()
        tun.close()
        raise


class TunnelHost:
    """A TUN for the life of a client or server. ClientHost and ServerHost say what is set up on it."""

    def __init__(self, tun: Tun, setup: HostSetup) -> None:
        """Take both over. Raises: SystemSetupError, and then they are still the caller's."""
        self.tun = tun
        self._setup = setup
        self._follower = LinkFollower()

    @property
    def own_addresses(self) -> frozenset[IPAddress]:
        """The host's addresses at the moment."""
        return frozenset(self._follower.addresses)

    @property
    def warnings(self) -> list[str]:
        """What could not be had and does not stop the tunnel."""
        return list(self._setup.warnings)

    def changes(self) -> AsyncGenerator[None]:
        """Yield whenever the host's links, addresses or routes changed. To be closed before the host is."""
        return link_changes(self._follower)

    def check_tun(self) -> None:
        """Look whether the TUN is as we left it. Raises: TunLostError."""
        check_tun_is_there(self.tun.name)

    def tun_status(self) -> dict[str, Any]:
        """Return what `qtunnel status` shows of the TUN's offloads: TunCounters, and what is in use."""
        return {
            "packets_read": self.tun.packets_read,
            "packets_written": self.tun.packets_written,
            **asdict(self.tun.counters),
            "refused": dict(self.tun.refused),
            "coalesces_tcp": self.tun.coalesces_tcp,
            "coalesces_udp": self.tun.coalesces_udp,
        }

    async def close(self) -> None:
        """Undo everything and give the TUN back. Never raises."""
        await self._setup.undo_all()
        self._follower.close()
        self.tun.close()
