"""Finding the device and addresses a tunnel has given its client."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_interface

from netlab.addresses import IPAddress, IPNetwork
from netlab.daemon import Daemon, wait_until
from netlab.host import Host
from netlab.tunnels.base import Inner


def wait_for_device(host: Host, *, networks: Sequence[IPNetwork], daemon: Daemon, timeout: float = 15.0) -> Inner:
    """Wait until a device of the host has an address in each network, and return what was found.

    NotReadyError if the daemon ends or it takes longer than timeout seconds.
    """
    families = {network.version for network in networks}
    wait_until(
        lambda: set(_addresses(host, networks)) == families,
        f"addresses inside the tunnel on {host.name}",
        daemon=daemon,
        timeout=timeout,
    )
    found = _addresses(host, networks)
    device, ipv4 = found[4]
    return Inner(host=host, device=device, ipv4=ipv4, ipv6=found[6][1] if 6 in found else None, daemon=daemon)


def _addresses(host: Host, networks: Sequence[IPNetwork]) -> dict[int, tuple[str, IPAddress]]:
    """Return device and address by IP version, of the addresses that are in the networks."""
    found: dict[int, tuple[str, IPAddress]] = {}
    for line in host.run(["ip", "-o", "addr"]).stdout.splitlines():
        device, address = line.split()[1], ip_interface(line.split()[3]).ip
        if any(address.version == network.version and address in network for network in networks):
            found[address.version] = (device, address)
    return found
