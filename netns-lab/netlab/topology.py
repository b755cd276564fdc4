"""Topologies as data: which hosts there are, and which paths lead from the clients to the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Interface
from types import MappingProxyType
from typing import Final

from netlab.addresses import EVERYTHING, IPAddress, Subnet
from netlab.host import Host
from netlab.network import Link, LinkEnd, Network
from netlab.path import VERSIONS, Path

SERVICE: Final = Subnet(500)
"""Where the server's address is if several paths lead to it: on its loopback device."""
FIRST_TABLE: Final = 101


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What to build. paths: (client, router) pairs; without a router ("") a bare veth pair.

    lan: a host h behind the server, which no router has a route to. nat: the routers hide the clients. behind:
    further hosts behind the first client, which is then their access router.
    """

    name: str
    about: str
    paths: tuple[tuple[str, str], ...]
    lan: bool = False
    nat: bool = False
    behind: tuple[str, ...] = ()

    def build(self, network: Network, *, mtu: int = 1500) -> Site:
        """Make hosts, links of an MTU, and default routes."""
        site = Site(self.name, network, network.host("s", forwards=True))
        for name, router in self.paths:
            client = site.clients.get(name) or network.host(name, forwards=bool(self.behind))
            site.clients[name] = client
            if router:
                site.paths[router] = Path(network, router, client, site.server, mtu=mtu, nat=self.nat)
            else:
                site.direct = network.link(client, site.server, mtu=mtu)
        several = len(site.paths) > len(site.clients)
        if several:
            _use_service_address(site)
        for number, path in enumerate(site.paths.values()):
            _route_over(path, number, with_table=several)
        for path in reversed(list(site.paths.values())):  # the first one is the one that stays
            path.far.route_default(site.server)
        for name in self.behind:
            _put_behind(site, network.host(name), mtu)
        if self.lan:
            host = network.host("h")
            site.lan = network.link(site.server, host)
            site.lan.route_default(host)
        return site


@dataclass(slots=True)
class Site:
    """A topology that has been built: the server, the clients and paths by name, in the topology's order."""

    name: str
    network: Network
    server: Host
    clients: dict[str, Host] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)
    direct: Link | None = None
    lan: Link | None = None
    behind: dict[str, LinkEnd] = field(default_factory=dict)
    service: tuple[IPv4Interface, IPv6Interface] | None = None

    @property
    def client(self) -> Host:
        """The first client."""
        return next(iter(self.clients.values()))

    @property
    def path(self) -> Path:
        """The first path."""
        return next(iter(self.paths.values()))

    def server_address(self, version: int, client: Host | None = None) -> IPAddress:
        """Return the address at which a client (the first) reaches the server."""
        if self.service is not None:
            return self.service[0 if version == 4 else 1].ip
        if self.direct is not None:
            return self.direct.b.address(version)
        return self._path_of(client or self.client).at_server.address(version)

    def client_end(self, client: Host) -> LinkEnd:
        """Return a client's end of its (first) link."""
        if client.name in self.behind:
            return self.behind[client.name]
        return self.direct.a if self.direct is not None else self._path_of(client).at_client

    def _path_of(self, client: Host) -> Path:
        if client.name in self.behind:
            return self.path
        return next(path for path in self.paths.values() if path.at_client.host is client)


def _use_service_address(site: Site) -> None:
    site.service = SERVICE.interfaces(1)
    for interface in site.service:
        site.server.add_address("lo", type(interface)((interface.ip, interface.max_prefixlen)))
        for path in site.paths.values():
            path.add_server_address(interface.ip)


def _put_behind(site: Site, host: Host, mtu: int) -> None:
    """Connect a host to the first client, and tell router and server where it is."""
    path = site.path
    link = site.network.link(host, path.at_client.host, mtu=mtu, offload=False)
    link.route_default(host)
    for network in (link.subnet.ipv4, link.subnet.ipv6):
        path.router_host.route(network, via=path.at_client.address(network.version))
        site.server.route(network, via=path.at_router_far.address(network.version))
    site.behind[host.name] = link.a


def _route_over(path: Path, number: int, *, with_table: bool) -> None:
    """Give a client its default route over a path, and a table for what is sent from its address there.

    Without need there is no table: the kernel remembers path MTUs for each table's routes apart.
    """
    client = path.at_client.host
    for version in VERSIONS:
        gateway = path.at_router_near.address(version)
        device = path.at_client.device
        client.route(EVERYTHING[version], via=gateway, device=device, metric=100 + number)
        if with_table:
            client.route(EVERYTHING[version], via=gateway, device=device, table=FIRST_TABLE + number)
            client.add_rule(source=path.at_client.address(version), table=FIRST_TABLE + number)


TOPOLOGIES: Final[Mapping[str, Topology]] = MappingProxyType(
    {
        topology.name: topology
        for topology in (
            Topology(name="direct", about="c and s on one veth pair, no router", paths=(("c", ""),)),
            Topology(name="path", about="c, a router r, s", paths=(("c", "r"),)),
            Topology(name="lan", about="c, r, s, and a host h behind s", paths=(("c", "r"),), lan=True),
            Topology(
                name="nat",
                about="like lan, and r hides c behind its address",
                paths=(("c", "r"),),
                lan=True,
                nat=True,
            ),
            Topology(
                name="two-paths",
                about="c with two links over r1 and r2 to s, and h behind s",
                paths=(("c", "r1"), ("c", "r2")),
                lan=True,
            ),
            Topology(
                name="two-clients",
                about="c1 over r1 and c2 over r2 to s, and h behind s",
                paths=(("c1", "r1"), ("c2", "r2")),
                lan=True,
            ),
        )
    }
)
