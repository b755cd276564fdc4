"""No tunnel: plain IP over the same links, the control of every experiment."""

from __future__ import annotations

from typing import ClassVar

from netlab.addresses import IPAddress
from netlab.host import Host
from netlab.tunnels.base import Feature, Inner, Tunnel


class NoTunnel(Tunnel):
    """Routes to the host behind the server are set where a tunnel would lead."""

    name: ClassVar[str] = "none"
    about: ClassVar[str] = "plain IP, the control"
    lacks: ClassVar[frozenset[Feature]] = frozenset(
        {Feature.DEVICE, Feature.PROCESS, Feature.NAMES, Feature.ABLATIONS}
    )

    def start_server(self) -> None:
        """Tell the routers of the host behind the server."""
        lan = self.site.lan
        for path in self.site.paths.values() if lan is not None else ():
            assert lan is not None
            for network in (lan.subnet.ipv4, lan.subnet.ipv6):
                path.router_host.route(network, via=path.at_server.address(network.version))

    def start_client(self, host: Host, *, outer: int | None = None) -> Inner:
        """Return the client's own link."""
        end = self.site.client_end(host)
        inner = Inner(host=host, device=end.device, ipv4=end.ipv4.ip, ipv6=end.ipv6.ip, daemon=None)
        self.clients.append(inner)
        return inner

    def server_inner(self, version: int) -> IPAddress:
        """Return the server's address on its link."""
        return self.site.server_address(version)
