"""What a client with a TUN changes on its host, and how it follows the host's own changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from qtunnel.aio.tunnel_host import TunnelHost, new_tun
from qtunnel.burst import Address
from qtunnel.config import ClientConfig, IPAddress, IPInterface, IPNetwork, RouteMode
from qtunnel.errors import NetworkOverlapError
from qtunnel.linux.host import HostSetup
from qtunnel.linux.host_networks import overlapping_networks
from qtunnel.linux.links import check_tun_is_there
from qtunnel.linux.nft import Masquerade
from qtunnel.linux.sysctl import read_sysctl
from qtunnel.linux.tun import Tun

__all__ = ["ClientHost"]

logger = logging.getLogger(__name__)

MIN_IPV6_MTU: Final = 1280


class ClientHost(TunnelHost):
    """A TUN for the life of the client, with the addresses and routes the server gives at the time.

    Between two connections all of it stays: packets then end in the TUN, counted, and not outside the tunnel.
    """

    def __init__(self, config: ClientConfig, tun: Tun, setup: HostSetup) -> None:
        super().__init__(tun, setup)
        self._config = config
        self._addresses: tuple[IPInterface, ...] = ()
        self._routes: dict[IPNetwork, IPAddress | None] = {}
        self._mtu = 0
        self._has_rules = False
        self._is_up = False

    @classmethod
    async def open(cls, config: ClientConfig) -> ClientHost:
        """Make the TUN; nothing is routed into it yet. Raises: SystemSetupError."""
        rules = {"table": config.route_table, "rule_priority": config.rule_priority}
        async with new_tun(config.host, **rules) as (tun, setup):
            await setup.prepare_tun(ipv6=config.want_ipv6 and _host_has_ipv6())
            if config.masquerade or config.advertise:
                await setup.enable_forwarding(ipv6=config.want_ipv6 and _host_has_ipv6())
            if config.masquerade:
                await setup.set_masquerade(Masquerade(lan=True, lan_exceptions=config.advertise))
            return cls(config, tun, setup)

    @property
    def warnings(self) -> list[str]:
        """What could not be had and does not stop the tunnel."""
        warnings = super().warnings
        families = {network.version for network in self._routes if not network.prefixlen}
        if families == {4} and any(":" in str(each) and each.is_global for each in self._follower.addresses):
            warnings.append(
                "IPv4 goes through the tunnel and this host's IPv6 does not: the server offers no IPv6 route. "
                "To keep it inside, type: ip -6 route add unreachable default metric 1"
            )
        return warnings

    def check_tun(self) -> None:
        """Look whether the TUN is as we left it. Raises: TunLostError."""
        check_tun_is_there(self.tun.name, must_be_up=self._is_up)

    async def set_servers(self, remotes: Iterable[Address]) -> None:
        """Keep the way to the server outside the tunnel: to every address it may be tried at from now on."""
        addresses = {ip_address(remote[0].partition("%")[0]) for remote in remotes}
        usable = [each for each in addresses if each.version == 4 or _host_has_ipv6()]
        await self._setup.set_server_addresses(usable)

    async def set_addresses(self, addresses: Iterable[IPInterface]) -> None:
        """Give the TUN exactly these addresses.

        Raises: NetworkOverlapError, when one lies in a network of this host.
        """
        wanted = tuple(each for each in addresses if each.version == 4 or _host_has_ipv6())
        self._check_overlap(each.network for each in wanted)
        for address in self._addresses:
            if address not in wanted:
                await self._setup.remove_address(address)
        self._addresses = tuple(address for address in self._addresses if address in wanted)
        await self._apply_mtu()
        for address in wanted:
            if address not in self._addresses:
                await self._setup.add_address(address, prefix_route=False)
        self._addresses = wanted
        self._follower.refresh_addresses()
        await self._setup.set_up()
        self._is_up = True

    async def set_mtu(self, mtu: int) -> None:
        """Follow the inner MTU; never below 1280 while there is an IPv6 address (RFC 8200 §5)."""
        self._mtu = mtu
        await self._apply_mtu()

    async def set_routes(self, advertised: Iterable[IPNetwork]) -> None:
        """Route exactly what configuration and the server's list call for.

        Raises: NetworkOverlapError, when one lies in a network of this host, where it could not be reached.
        """
        wanted: dict[IPNetwork, IPAddress | None] = {}
        networks = list(self._config.routes)
        if self._config.route_mode is RouteMode.ADVERTISED:
            networks += [each for each in advertised if not self._is_carried(each)]
        sources = {address.version: address.ip for address in reversed(self._addresses)}
        for network in networks:
            if network.version in sources:
                wanted[network] = sources[network.version]
        self._check_overlap(wanted)
        for network in self._routes:
            if network not in wanted:
                await self._setup.remove_route(network)
        for network, source in wanted.items():
            if self._routes.get(network) != source or network not in self._routes:
                await self._setup.add_route(network, source=source)
        self._routes = wanted
        if not self._has_rules:
            self._has_rules = True
            versions = (4, 6) if _host_has_ipv6() else (4,)
            await self._setup.add_table_rules(versions)

    async def _apply_mtu(self) -> None:
        if self._mtu:
            has_ipv6 = any(address.version == 6 for address in self._addresses)
            await self._setup.set_tun_mtu(max(self._mtu, MIN_IPV6_MTU) if has_ipv6 else self._mtu)

    def _is_carried(self, network: IPNetwork) -> bool:
        """Say whether this is a network of ours that the server routes to us."""
        return network in self._config.advertise

    def _check_overlap(self, networks: Iterable[IPNetwork]) -> None:
        """Refuse a network that lies in one of the host's own, which would win.

        The other way round is fine and usual: the host's LAN lies in 10.0.0.0/8, and is reached as ever.
        """
        found = [
            each
            for each in overlapping_networks(
                networks, except_interface=self.tun.name, except_table=self._config.route_table
            )
            if each.known.network.prefixlen <= each.network.prefixlen
        ]
        if found:
            raise NetworkOverlapError(
                f"{'; '.join(map(str, found))}. Two networks with the same addresses cannot both be reached: "
                "choose routes with --route, or have the server's pool changed"
            )


def _host_has_ipv6() -> bool:
    return read_sysctl("net/ipv6/conf/all/disable_ipv6") is not None
