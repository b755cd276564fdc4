"""Prefixes and the address ranges of RFC 9484 §4.7.3, one from the other."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import collapse_addresses, summarize_address_range

from qtunnel.config import IPNetwork
from qtunnel.ip.policy import IpRange
from qtunnel.masque.address_capsules import AddressRange

__all__ = ["as_ip_ranges", "as_prefixes", "as_ranges"]


def as_ranges(networks: Iterable[IPNetwork], protocol: int = 0) -> list[AddressRange]:
    """Return the networks as ranges in the order RFC 9484 §4.7.3 wants, IPv4 first, without overlaps."""
    networks = list(networks)
    ranges = []
    for version in (4, 6):
        for network in collapse_addresses(n for n in networks if n.version == version):
            ranges.append(AddressRange(network.network_address, network.broadcast_address, protocol))
    return ranges


def as_prefixes(ranges: Iterable[AddressRange], limit: int) -> tuple[tuple[IPNetwork, ...], bool]:
    """Return the prefixes that make up the ranges, and whether there were more than limit.

    A single range can fall into some hundred prefixes, so a peer's list has to be bounded again here. Ranges that
    differ by protocol alone give one prefix.
    """
    prefixes: dict[IPNetwork, None] = {}
    for each in ranges:
        for prefix in summarize_address_range(each.start, each.end):
            if len(prefixes) == limit and prefix not in prefixes:
                return tuple(prefixes), True
            prefixes[prefix] = None
    return tuple(prefixes), False


def as_ip_ranges(ranges: Iterable[AddressRange]) -> list[IpRange]:
    """Return the ranges as the packet filter takes them."""
    return [IpRange(each.start.version, int(each.start), int(each.end), each.protocol) for each in ranges]
