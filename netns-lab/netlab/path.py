"""One path between two hosts: a link, a kernel router, a link; and everything that can happen to it."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

from netlab.addresses import IPAddress, IPNetwork
from netlab.host import Host
from netlab.network import Link, LinkEnd, Network
from netlab.router import Router
from netlab.shape import Shape

VERSIONS: Final = (4, 6)


class Path:
    """client ══ near link ══ router ══ far link ══ server. Up is from the client to the server."""

    def __init__(
        self, network: Network, name: str, client: Host, server: Host, *, mtu: int = 1500, nat: bool = False
    ) -> None:
        self.name = name
        self.router_host = network.host(name, forwards=True)
        # Without offload, so that sizes on the wire are real and limits count packets.
        self.near: Link = network.link(client, self.router_host, mtu=mtu, offload=False)
        self.far: Link = network.link(self.router_host, server, mtu=mtu, offload=False)
        self.router = Router(self.router_host, [self.at_router_near.device, self.at_router_far.device])
        if nat:
            self.router.enable_nat(self.at_router_far.device)
        self._network = network
        self._shapes: dict[str, Shape] = {}
        self._server_addresses = {version: [self.at_server.address(version)] for version in VERSIONS}
        for version in VERSIONS:
            if not nat:  # a NAT hides the near network, so the server has no route to it
                server.route(self.near_network(version), via=self.at_router_far.address(version))

    # The four ends, and who is where

    @property
    def at_client(self) -> LinkEnd:
        """The client's end."""
        return self.near.a

    @property
    def at_router_near(self) -> LinkEnd:
        """The router's end towards the client."""
        return self.near.b

    @property
    def at_router_far(self) -> LinkEnd:
        """The router's end towards the server."""
        return self.far.a

    @property
    def at_server(self) -> LinkEnd:
        """The server's end."""
        return self.far.b

    def near_network(self, version: int) -> IPNetwork:
        """Return the network of the client's link."""
        return self.near.subnet.ipv4 if version == 4 else self.near.subnet.ipv6

    # Delay, rate, queue, loss, reordering

    def set_shape(self, up: Shape, down: Shape | None = None) -> None:
        """Shape both directions (down: like up, with the next seed), from now on or for the first time."""
        down = down or up.but(seed=up.seed + 1)
        backend = self._network.backend(self.router_host)
        for end, shape in ((self.at_router_far, up), (self.at_router_near, down)):
            verb = backend.change if end.device in self._shapes else backend.attach
            verb(self.router_host, end.device, shape)
            self._shapes[end.device] = shape

    # Size

    def set_mtu(self, mtu: int) -> None:
        """Let the router forward nothing larger, in either direction."""
        for version in VERSIONS:
            here = self.at_client.address(version)
            self.router_host.route(ip_network(here), device=self.at_router_near.device, mtu=mtu)
            for there in self._server_addresses[version]:
                # The service address is not on the link: its route needs the gateway.
                gateway = self.at_server.address(version) if there != self.at_server.address(version) else None
                self.router_host.route(ip_network(there), via=gateway, device=self.at_router_far.device, mtu=mtu)

    def add_server_address(self, address: IPAddress) -> None:
        """Lead to another address of the server; set_mtu then covers it too."""
        self._server_addresses[address.version].append(address)
        self.router_host.route(
            ip_network(address), via=self.at_server.address(address.version), device=self.at_router_far.device
        )

    def set_local_mtu(self, mtu: int) -> None:
        """Give the client's own link another MTU, both ends alike: the client's kernel knows it."""
        for end in (self.near.a, self.near.b):
            end.host.netlink.link("set", index=end.host.index(end.device), mtu=mtu)

    # Life and death

    def set_carrier(self, on: bool) -> None:
        """Take the router's end of the client's link down (the client loses its carrier), or up again."""
        if not on:
            self.router_host.set_down(self.at_router_near.device)
            return
        self.router_host.set_up(self.at_router_near.device)
        # Taking a device down has removed its IPv6 address and its routes.
        end = self.at_router_near
        self.router_host.ensure_address(end.device, end.ipv6)
        for interface in (self.at_client.ipv4, self.at_client.ipv6):
            self.router_host.add_neighbour(end.device, interface.ip, self.at_client.hardware_address)
