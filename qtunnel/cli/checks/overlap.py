"""Networks of the tunnels set up here that overlap those of the host, or each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_network

from qtunnel.cli.checks.finding import Finding, error, ok, warning
from qtunnel.config import IPNetwork
from qtunnel.linux.host_networks import HostNetwork
from qtunnel.state.server_record import ServerRecord

__all__ = ["check_pools", "check_profiles"]


def check_pools(
    record: ServerRecord, host: Iterable[HostNetwork], tunnel_devices: Collection[str]
) -> list[Finding]:
    """Compare a server's pools with the host's networks, but for those of our own TUN devices."""
    known = list(host)
    findings = []
    for pool, flag in ((record.pool4, "--pool4"), (record.pool6, "--pool6")):
        if pool is None:
            continue
        if clash := _clash(pool.network, known, tunnel_devices):
            findings.append(
                error(
                    "overlap",
                    f"the server's pool {pool.network} overlaps {_name(clash)}",
                    f"qtunnel serve {flag} ADDRESS/LENGTH, once; clients get new addresses",
                )
            )
        else:
            findings.append(ok("overlap", f"the server's pool {pool.network} overlaps nothing here"))
    return findings


def check_profiles(
    profiles: Mapping[str, Sequence[str]], host: Iterable[HostNetwork], tunnel_devices: Collection[str]
) -> list[Finding]:
    """Compare the routes in profiles with the host's networks and with each other's. profiles: routes by name."""
    known = list(host)
    routes = [(name, network) for name, texts in profiles.items() for network in _networks(texts)]
    findings = []
    for number, (name, network) in enumerate(routes):
        if clash := _clash(network, known, tunnel_devices):
            findings.append(
                warning(
                    "overlap",
                    f"profile {name} routes {network} into the tunnel, and this host has {_name(clash)}",
                    "Connected networks keep to their own interface; take out the route if that is not meant",
                )
            )
        findings += [
            warning(
                "overlap",
                f"profiles {name} and {other} both route {network}"
                + ("" if network == theirs else f" ({theirs})"),
                "Only one of them can be up; or take the route out of one",
            )
            for other, theirs in routes[number + 1 :]
            if other != name and _overlap(network, theirs)
        ]
    return findings


def _clash(network: IPNetwork, host: Iterable[HostNetwork], tunnel_devices: Collection[str]) -> HostNetwork | None:
    for known in host:
        if known.interface not in tunnel_devices and _overlap(network, known.network):
            return known
    return None


def _overlap(first: IPNetwork, second: IPNetwork) -> bool:
    return (
        first.version == second.version and bool(first.prefixlen and second.prefixlen) and first.overlaps(second)
    )


def _networks(texts: Iterable[str]) -> list[IPNetwork]:
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError:
            continue  # `default` or `none`; anything else is reported by connect
    return networks


def _name(network: HostNetwork) -> str:
    return f"{network.network} on {network.interface}" if network.interface else str(network.network)
