"""Address pools for a new server, chosen so as not to overlap anything the host knows (D10)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network
from typing import Final

from qtunnel.config import IPNetwork
from qtunnel.errors import NetworkOverlapError

__all__ = ["choose_pool4", "choose_pool6"]

PRIVATE4: Final = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"))
"""RFC 1918, without 192.168/16: too many homes are in it, and a client is at home somewhere else."""
POPULAR4: Final = tuple(
    IPv4Network(text)
    for text in (
        "10.0.0.0/14",  # hand-made networks, home routers, cloud defaults
        "10.8.0.0/16",  # a VPN's default
        "10.10.0.0/16",
        "10.42.0.0/15",  # cluster defaults
        "10.88.0.0/16",  # container defaults
        "10.96.0.0/12",
        "10.244.0.0/16",
        "172.17.0.0/16",
        "172.18.0.0/15",
        "172.20.0.0/14",
        "172.31.0.0/16",
    )
)
ULA: Final = IPv6Network("fd00::/8")
ATTEMPTS: Final = 10_000


def choose_pool4(taken: Iterable[IPNetwork], rng: random.Random) -> IPv4Interface:
    """Return the server's address (.1) in a random private /24 that overlaps none of taken, nor a popular one.

    A default route in taken is ignored.

    Raises:
        NetworkOverlapError: everything is taken.
    """
    used = [network for network in taken if isinstance(network, IPv4Network) and network.prefixlen > 0]
    for avoid in (used + list(POPULAR4), used):
        for _ in range(ATTEMPTS):
            network = _random_slash_24(rng)
            if not any(network.overlaps(other) for other in avoid):
                return IPv4Interface((int(network.network_address) + 1, 24))
    raise NetworkOverlapError(
        "this host uses all of 10.0.0.0/8 and 172.16.0.0/12. Give a pool: --pool4 ADDRESS/LENGTH"
    )


def choose_pool6(taken: Iterable[IPNetwork], rng: random.Random) -> IPv6Interface:
    """Return the server's address (::1) in a random unique local /64 (RFC 4193 §3.2) that overlaps none of taken.

    Raises:
        NetworkOverlapError: everything is taken.
    """
    used = [network for network in taken if isinstance(network, IPv6Network) and network.prefixlen > 0]
    for _ in range(ATTEMPTS):
        # 40 random bits of global id; the subnet is 0.
        network = IPv6Network((int(ULA.network_address) | rng.getrandbits(40) << 80, 64))
        if not any(network.overlaps(other) for other in used):
            return IPv6Interface((int(network.network_address) + 1, 64))
    raise NetworkOverlapError("this host uses all of fd00::/8. Give a pool: --pool6 ADDRESS/LENGTH")


def _random_slash_24(rng: random.Random) -> IPv4Network:
    number = rng.randrange(sum(block.num_addresses for block in PRIVATE4) // 256)
    for block in PRIVATE4:
        count = block.num_addresses // 256
        if number < count:
            return IPv4Network((int(block.network_address) + number * 256, 24))
        number -= count
    raise AssertionError("the number is below the sum of the counts")
