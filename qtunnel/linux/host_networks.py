"""Which networks this host knows, and by which interface: what a tunnel's own networks must not overlap.

All calls are plain and answered by the kernel at once; none needs root. They raise OSError if there is no netlink.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from qtunnel.linux.netlink import LOCAL_TABLE, MAIN_TABLE, Netlink, Route

__all__ = ["HostNetwork", "Overlap", "host_networks", "overlapping_networks", "router_advertised_interfaces"]

IPNetwork = IPv4Network | IPv6Network

_ROUTER_ADVERTISEMENT: Final = 9
"""RTPROT_RA."""


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """A network of this host: of an address, or of a route.

    interface: where it is; None for a route without one (unreachable, blackhole).
    """

    network: IPNetwork
    interface: str | None


@dataclass(frozen=True, slots=True)
class Overlap:
    """A network asked for, and what this host already has there."""

    network: IPNetwork
    known: HostNetwork

    def __str__(self) -> str:
        interface = self.known.interface
        place = f"interface {interface}" if interface else "a route that goes nowhere"
        return f"{self.network} overlaps {self.known.network} of {place}"


def host_networks(*, except_interface: str | None = None, except_table: int | None = None) -> list[HostNetwork]:
    """Return the networks of this host's addresses and of the routes of any table.

    Left out are one interface (the tunnel's own), one table (its), default routes, and networks that are of one
    link each, such as fe80::/64.
    """
    found: dict[HostNetwork, None] = {}
    with Netlink() as netlink:
        names = {link.index: link.name for link in netlink.links()}
        for address in netlink.addresses():
            found[HostNetwork(address.interface.network, names.get(address.index))] = None
        for route in [*_routes(netlink, 4), *_routes(netlink, 6)]:
            if route.table not in (LOCAL_TABLE, except_table):
                name = None if route.index is None else names.get(route.index)
                found[HostNetwork(route.network, name)] = None
    return [
        each
        for each in found
        if (each.interface is None or each.interface != except_interface)
        and each.network.prefixlen
        and not each.network.is_link_local
        and not each.network.is_multicast
    ]


def overlapping_networks(
    networks: Iterable[IPNetwork], *, except_interface: str | None = None, except_table: int | None = None
) -> list[Overlap]:
    """Return which of the networks this host already uses (host_networks, which has the exceptions).

    networks may hold a default route, which overlaps nothing: the host's own networks win over it.
    """
    wanted = [network for network in networks if network.prefixlen]
    known = host_networks(except_interface=except_interface, except_table=except_table) if wanted else []
    return [Overlap(network, each) for network in wanted for each in known if _overlap(network, each.network)]


def router_advertised_interfaces() -> list[str]:
    """Return the interfaces by which a router announced this host's IPv6 default route (RFC 4861)."""
    with Netlink() as netlink:
        names = {link.index: link.name for link in netlink.links()}
        indices = {
            route.index
            for route in _routes(netlink, 6)
            if route.table == MAIN_TABLE
            and not route.network.prefixlen
            and route.protocol == _ROUTER_ADVERTISEMENT
        }
    return sorted(name for index, name in names.items() if index in indices)


def _routes(netlink: Netlink, version: int) -> list[Route]:
    try:
        return netlink.routes(version)
    except OSError as error:
        if error.errno in (errno.EAFNOSUPPORT, errno.EOPNOTSUPP):
            return []  # no such IP version on this host
        raise


def _overlap(one: IPNetwork, other: IPNetwork) -> bool:
    if isinstance(one, IPv4Network) and isinstance(other, IPv4Network):
        return one.overlaps(other)
    return isinstance(one, IPv6Network) and isinstance(other, IPv6Network) and one.overlaps(other)
