"""What a server with a TUN changes on its host, and how it follows the host's own changes."""

from __future__ import annotations

import logging
from collections.abc import Collection

from qtunnel.aio.tunnel_host import TunnelHost, new_tun
from qtunnel.config import IPNetwork, ServerConfig
from qtunnel.errors import NetworkOverlapError, SystemSetupError
from qtunnel.linux.host import HostSetup
from qtunnel.linux.host_networks import overlapping_networks
from qtunnel.linux.netlink import MAIN_TABLE
from qtunnel.linux.nft import Masquerade
from qtunnel.linux.tun import Tun

__all__ = ["ServerHost"]

logger = logging.getLogger(__name__)


class ServerHost(TunnelHost):
    """The server's TUN with its own inner addresses, forwarding, masquerade, and routes to networks of clients."""

    def __init__(self, tun: Tun, setup: HostSetup) -> None:
        super().__init__(tun, setup)
        self._prefixes: set[IPNetwork] = set()

    @classmethod
    async def open(cls, config: ServerConfig, *, tun_mtu: int) -> ServerHost:
        """Set up everything a server needs. Undoes it all when a part fails.

        tun_mtu: the largest inner packet any client's path may carry; what is too big for one client is answered
        with ICMP by the tunnel.

        Raises:
            NetworkOverlapError: a pool is in use on this host. SystemSetupError: no TUN, no permission, no nft.
        """
        pools = [pool for pool in (config.pool4, config.pool6) if pool is not None]
        found = overlapping_networks([pool.network for pool in pools])
        if found:
            raise NetworkOverlapError(f"{'; '.join(map(str, found))}. Choose other pools with --pool4 and --pool6")
        async with new_tun(config.host, table=None) as (tun, setup):
            await setup.prepare_tun(ipv6=config.pool6 is not None)
            await setup.set_tun_mtu(max(tun_mtu, 1280))
            for pool in pools:
                await setup.add_address(pool)
            await setup.set_up()
            if config.forward or config.masquerade or config.advertise:
                await setup.enable_forwarding(ipv4=config.pool4 is not None, ipv6=config.pool6 is not None)
            if config.masquerade:
                # A pool of global addresses is routed here by a provider; hiding it would be a loss.
                hidden = tuple(pool.network for pool in pools if not pool.network.is_global)
                await setup.set_masquerade(Masquerade(pools=hidden))
            return cls(tun, setup)

    async def set_client_prefixes(self, prefixes: Collection[IPNetwork]) -> None:
        """Route exactly these networks, which lie behind clients, into the TUN."""
        for prefix in self._prefixes - set(prefixes):
            await self._setup.remove_route(prefix, table=MAIN_TABLE)
            self._prefixes.discard(prefix)
        for prefix in set(prefixes) - self._prefixes:
            try:
                await self._setup.add_route(prefix, table=MAIN_TABLE)
            except SystemSetupError as error:
                logger.warning("the network %s behind a client cannot be routed: %s", prefix, error)
                continue
            self._prefixes.add(prefix)
