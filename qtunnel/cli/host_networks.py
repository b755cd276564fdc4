"""Which networks this host knows, and by which interface: what a tunnel's own networks must not overlap."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_interface, ip_network
from typing import Final

from pyroute2 import IPRoute

from qtunnel.config import IPNetwork

__all__ = ["HostNetwork", "host_networks", "router_advertised_interfaces"]

_MAIN_TABLE: Final = 254
_ROUTER_ADVERTISEMENT: Final = 9
"""RTPROT_RA."""
_LOCAL: Final = ("127.0.0.0/8", "::1/128", "fe80::/64", "ff00::/8")


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """A network of this host: of an address, or a route of the main table. interface: its name, if it has one."""

    network: IPNetwork
    interface: str | None


def host_networks() -> list[HostNetwork]:
    """Return them all, but for default routes, loopback and link-local ones. Not for use inside a running loop."""
    found: dict[tuple[IPNetwork, str | None], None] = {}
    skipped = {ip_network(text) for text in _LOCAL}
    with IPRoute() as netlink:
        names = {link["index"]: link.get("ifname") for link in netlink.get_links()}
        for address in netlink.get_addr():
            network = ip_interface(f"{address.get('address')}/{address['prefixlen']}").network
            found[network, names.get(address["index"])] = None
        for family in (socket.AF_INET, socket.AF_INET6):
            for route in netlink.get_routes(family=family, table=_MAIN_TABLE):
                destination = route.get("dst")
                if destination and route["dst_len"]:
                    network = ip_network(f"{destination}/{route['dst_len']}", strict=False)
                    found[network, names.get(route.get("oif"))] = None
    return [HostNetwork(network, name) for network, name in found if network not in skipped]


def router_advertised_interfaces() -> list[str]:
    """Return the interfaces by which a router announced this host's IPv6 default route (RFC 4861)."""
    with IPRoute() as netlink:
        names = {link["index"]: str(link.get("ifname")) for link in netlink.get_links()}
        routes = [
            route
            for route in netlink.get_routes(family=socket.AF_INET6, table=_MAIN_TABLE)
            if route["dst_len"] == 0 and route["proto"] == _ROUTER_ADVERTISEMENT
        ]
        return sorted({names[route.get("oif")] for route in routes if route.get("oif") in names})
