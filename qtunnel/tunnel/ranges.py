"""Prefixes and the address ranges of RFC 9484 §4.7.3, one from the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    summarize_address_range,
)

from qtunnel.config import IPNetwork
from qtunnel.ip.policy import IpRange
from qtunnel.masque.address_capsules import AddressRange

__all__ = ["as_ip_ranges", "as_prefixes", "as_ranges", "contains"]


def as_ranges(networks: Iterable[IPNetwork], protocol: int = 0) -> list[AddressRange]:
    """Return the networks as ranges in the order RFC 9484 §4.7.3 wants, IPv4 first, without overlaps."""
    networks = list(networks)
    collapsed: list[IPNetwork] = [
        *collapse_addresses(network for network in networks if isinstance(network, IPv4Network)),
        *collapse_addresses(network for network in networks if isinstance(network, IPv6Network)),
    ]
    return [AddressRange(n.network_address, n.broadcast_address, protocol) for n in collapsed]


def contains(outer: IPNetwork, inner: IPNetwork) -> bool:
    """Say whether a network lies in another; never, when the families differ."""
    return (
        outer.version == inner.version
        and int(outer.network_address) <= int(inner.network_address)
        and int(inner.broadcast_address) <= int(outer.broadcast_address)
    )


def as_prefixes(ranges: Iterable[AddressRange], limit: int) -> tuple[tuple[IPNetwork, ...], bool]:
    """Return the prefixes that make up the ranges, and whether there were more than limit.

    A single range can fall into some hundred prefixes, so a peer's list has to be bounded again here. Ranges that
    differ by protocol alone give one prefix.
    """
    prefixes: dict[IPNetwork, None] = {}
    for each in ranges:
        for prefix in _prefixes(each):
            if len(prefixes) == limit and prefix not in prefixes:
                return tuple(prefixes), True
            prefixes[prefix] = None
    return tuple(prefixes), False


def as_ip_ranges(ranges: Iterable[AddressRange]) -> list[IpRange]:
    """Return the ranges as the packet filter takes them."""
    return [IpRange(each.start.version, int(each.start), int(each.end), each.protocol) for each in ranges]


def _prefixes(each: AddressRange) -> Iterator[IPNetwork]:
    start, end = each.start, each.end
    if isinstance(start, IPv4Address) and isinstance(end, IPv4Address):
        return summarize_address_range(start, end)
    if isinstance(start, IPv6Address) and isinstance(end, IPv6Address):
        return summarize_address_range(start, end)
    raise AssertionError("a range has one family")
