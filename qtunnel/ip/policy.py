"""Which inner packets may pass in one direction of one session (RFC 9484 §7.2, §11; BCP 38).

A verdict depends on the two addresses and the protocol alone, so Policy remembers the pairs it let through; a
packet of a known pair costs one set look-up, however many ranges there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from qtunnel.config import IPAddress, IPNetwork
from qtunnel.drops import DropReason
from qtunnel.errors import LocalProtocolError
from qtunnel.ip.address import is_link_local, is_martian_destination, is_martian_source
from qtunnel.ip.header import ICMP, ICMPV6, IpHeader, destination, source

__all__ = ["IpRange", "Policy", "destination", "source"]

_REMEMBERED_PAIRS: Final = 512
"""Bound of the memory of one policy: about 70 KB. A peer that scans addresses only makes it forget."""

_LAST_NUMBER: Final = {4: 0xFFFFFFFF, 6: (1 << 128) - 1}
_ICMP_OF: Final = {4: ICMP, 6: ICMPV6}


@dataclass(frozen=True, slots=True)
class IpRange:
    """Addresses start to end, both included, as numbers, for one protocol or, with 0, all (RFC 9484 §4.7.3).

    Raises: LocalProtocolError if the version is not 4 or 6, or start, end, protocol are no such range.
    """

    version: int
    start: int
    end: int
    protocol: int = 0

    def __post_init__(self) -> None:
        last = _LAST_NUMBER.get(self.version)
        if last is None:
            raise LocalProtocolError(f"IP version {self.version}, not 4 or 6")
        if not 0 <= self.start <= self.end <= last:
            raise LocalProtocolError(f"IPv{self.version} range {self.start:#x} to {self.end:#x} is none")
        if not 0 <= self.protocol <= 255:
            raise LocalProtocolError(f"protocol {self.protocol}, not 0 to 255")

    @classmethod
    def of_network(cls, network: IPNetwork, protocol: int = 0) -> IpRange:
        """Return the range that is this network."""
        return cls(network.version, int(network.network_address), int(network.broadcast_address), protocol)


class Policy:
    """What may pass. Never changes: to change the rules, put a new Policy in its place.

    sources, destinations: what is allowed; None is everything, an empty sequence nothing. ICMP passes to every
    range whatever its protocol (RFC 9484 §4.6). own_addresses: refused as a source, since accept_local would make
    the kernel believe them. ipv6: False when the tunnel cannot carry 1280 bytes. link_local: True if the packets
    come from our own end; a link-local echo among them is for the other end, so Forwarder passes it on. Otherwise
    Forwarder answers it.
    """

    __slots__ = ("_destinations", "_own", "_sets", "_sources", "allowed_pairs", "ipv6", "link_local")

    def __init__(
        self,
        *,
        sources: Sequence[IPNetwork] | None = None,
        destinations: Sequence[IpRange] | None = None,
        own_addresses: Collection[IPAddress] = (),
        ipv6: bool = True,
        link_local: bool = False,
    ) -> None:
        self.ipv6 = ipv6
        self.link_local = link_local
        self._own = frozenset(address.packed for address in own_addresses)
        self._sources = None if sources is None else _Intervals(IpRange.of_network(each) for each in sources)
        self._destinations = None if destinations is None else _Destinations(destinations)
        # Protocols with the same verdict for every pair of addresses share a set.
        shared: set[bytes] = set()
        scoped = set() if self._destinations is None else self._destinations.scoped_protocols
        self._sets = [shared] + [set() for _ in scoped]
        own_set = dict(zip(sorted(scoped), self._sets[1:], strict=True))
        self.allowed_pairs: tuple[set[bytes], ...] = tuple(own_set.get(number, shared) for number in range(256))
        """By protocol: source and destination, joined, of packets that passed. Only check_addresses adds to it."""

    def check(self, header: IpHeader) -> DropReason | None:
        """Return why a packet may not pass, or None if it may."""
        reason = self.check_addresses(header.source + header.destination, header.protocol)
        if reason is None and header.has_routing_header_0:
            return DropReason.ROUTING_HEADER
        return reason

    def check_addresses(self, addresses: bytes, protocol: int) -> DropReason | None:
        """Return the same for the packed source and destination, joined: 8 bytes of IPv4 or 32 of IPv6.

        protocol: the first that is no extension header (RFC 9484 §4.8). This is the slow way; a pair that passes
        is found in allowed_pairs from then on.
        """
        reason = self._verdict(addresses, protocol)
        if reason is None:
            if sum(map(len, self._sets)) >= _REMEMBERED_PAIRS:
                for pairs in self._sets:
                    pairs.clear()
            self.allowed_pairs[protocol].add(addresses)
        return reason

    def _verdict(self, addresses: bytes, protocol: int) -> DropReason | None:
        half = len(addresses) // 2
        version = 4 if half == 4 else 6
        source, destination = addresses[:half], addresses[half:]
        if version == 6 and not self.ipv6:
            return DropReason.IPV6_UNAVAILABLE
        if source in self._own:
            return DropReason.OWN_ADDRESS_SOURCE
        if is_martian_source(source):
            return DropReason.MARTIAN_SOURCE
        if is_link_local(source) or is_link_local(destination):
            return DropReason.LINK_LOCAL
        if self._sources is not None and not self._sources.contain(version, int.from_bytes(source, "big")):
            return DropReason.SOURCE_NOT_ALLOWED
        if is_martian_destination(destination):
            return DropReason.DESTINATION_NOT_ALLOWED
        if self._destinations is None:
            return None
        return self._destinations.verdict(version, int.from_bytes(destination, "big"), protocol)


class _Intervals:
    """A set of addresses of both families: sorted, merged intervals, searched by bisection."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[IpRange]) -> None:
        self._starts: dict[int, list[int]] = {4: [], 6: []}
        self._ends: dict[int, list[int]] = {4: [], 6: []}
        for each in sorted(ranges, key=lambda each: each.start):
            starts, ends = self._starts[each.version], self._ends[each.version]
            if ends and each.start <= ends[-1] + 1:
                ends[-1] = max(ends[-1], each.end)
            else:
                starts.append(each.start)
                ends.append(each.end)

    def contain(self, version: int, address: int) -> bool:
        index = bisect_right(self._starts[version], address) - 1
        return index >= 0 and address <= self._ends[version][index]


class _Destinations:
    """Ranges by protocol, each set merged with the ranges for all protocols."""

    __slots__ = ("_any_protocol", "_by_protocol", "_whatever_protocol", "scoped_protocols")

    def __init__(self, ranges: Sequence[IpRange]) -> None:
        protocols = {each.protocol for each in ranges} - {0}
        self._by_protocol = {
            number: _Intervals(each for each in ranges if each.protocol in (0, number)) for number in protocols
        }
        self._any_protocol = _Intervals(each for each in ranges if each.protocol == 0)
        self._whatever_protocol = _Intervals(ranges)
        self.scoped_protocols = protocols | {ICMP, ICMPV6} if protocols else set()

    def verdict(self, version: int, address: int, protocol: int) -> DropReason | None:
        if not self._whatever_protocol.contain(version, address):
            return DropReason.DESTINATION_NOT_ALLOWED
        if protocol == _ICMP_OF[version]:
            return None
        if self._by_protocol.get(protocol, self._any_protocol).contain(version, address):
            return None
        return DropReason.PROTOCOL_NOT_ALLOWED
