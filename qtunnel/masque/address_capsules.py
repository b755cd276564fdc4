"""ADDRESS_ASSIGN, ADDRESS_REQUEST and ROUTE_ADVERTISEMENT: their values to bytes and back (RFC 9484 §4.7).

    Assigned or Requested Address:  Request ID (i), IP Version (8), IP Address (32 or 128), IP Prefix Length (8)
    IP Address Range:               IP Version (8), Start (32 or 128), End (32 or 128), IP Protocol (8)

Every rule of the section is checked both ways. A value from the peer that breaks one raises PeerProtocolError
(H3_MESSAGE_ERROR: a malformed message, RFC 9297 §3.3); one that we would send raises LocalProtocolError. A list
longer than MAX_ADDRESSES or MAX_RANGES is legal but refused (H3_EXCESSIVE_LOAD), as we would have to keep it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from itertools import pairwise
from typing import Final

from qtunnel.config import IPAddress, IPInterface
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.masque.error_codes import HttpErrorCode
from qtunnel.masque.varint import decode_varint, encode_varint

__all__ = [
    "MAX_ADDRESSES",
    "MAX_RANGES",
    "AddressRange",
    "AssignedAddress",
    "RequestedAddress",
    "decode_address_assign",
    "decode_address_request",
    "decode_route_advertisement",
    "encode_address_assign",
    "encode_address_request",
    "encode_route_advertisement",
    "match_requests",
    "refusal",
]

MAX_ADDRESSES: Final = 256
"""Entries of an ADDRESS_ASSIGN or ADDRESS_REQUEST capsule; a client is given one or two."""
MAX_RANGES: Final = 2048
"""Entries of a ROUTE_ADVERTISEMENT capsule; "everything except private networks" takes about 30."""

ANY_PROTOCOL: Final = 0
"""IP Protocol 0 in a range allows every protocol; it does not mean Hop-by-Hop Options (RFC 9484 §4.8)."""


@dataclass(frozen=True, slots=True)
class AssignedAddress:
    """One address or prefix its receiver may send from, or the refusal of a request.

    request_id: the request this answers, 0 when unsolicited. prefix: address and prefix length; bits below the
    prefix length are zero, except from a peer whose quirk that is (RFC 9484 §4.7.1).
    """

    request_id: int
    prefix: IPInterface

    @property
    def is_refusal(self) -> bool:
        """Say whether this is 0.0.0.0/32 or ::/128: nothing was assigned."""
        return int(self.prefix) == 0 and self.prefix.network.prefixlen == self.prefix.max_prefixlen


@dataclass(frozen=True, slots=True)
class RequestedAddress:
    """One address its sender would like. An all-zero one means any of that family and prefix length."""

    request_id: int
    prefix: IPInterface

    @property
    def is_any(self) -> bool:
        """Say whether the sender leaves the choice of address to us."""
        return int(self.prefix) == 0


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Destinations from start to end, both included, its sender routes; protocol 0 is every protocol.

    ICMP is allowed whatever protocol says (RFC 9484 §4.7.3).

    Raises:
        LocalProtocolError: the families differ, start is above end, or protocol is outside 0 to 255.
    """

    start: IPAddress
    end: IPAddress
    protocol: int = ANY_PROTOCOL

    def __post_init__(self) -> None:
        if self.start.version != self.end.version:
            raise LocalProtocolError(f"a range from {self.start} to {self.end} mixes two families")
        if int(self.start) > int(self.end):
            raise LocalProtocolError(f"a range's start {self.start} is above its end {self.end}")
        if not 0 <= self.protocol <= 255:
            raise LocalProtocolError(f"{self.protocol} is no protocol number (0 to 255)")

    @property
    def version(self) -> int:
        """Return 4 or 6."""
        return self.start.version


def refusal(request: RequestedAddress) -> AssignedAddress:
    """Return the answer that nothing is assigned: all-zero at full length (RFC 9484 §4.7.2)."""
    prefix = IPv4Interface((0, 32)) if request.prefix.version == 4 else IPv6Interface((0, 128))
    return AssignedAddress(request.request_id, prefix)


def match_requests(requests: Sequence[RequestedAddress], assigned: Sequence[IPInterface]) -> list[AssignedAddress]:
    """Return the complete list that answers requests when the peer's addresses are assigned (RFC 9484 §4.7.2).

    Each request has one entry under its Request ID: the assigned prefix that contains the wish, for a wish
    without preference the smallest of its family that is as large as wished, else a refusal. A prefix answers one
    request; those that answer none are listed under 0, as the list is always the full one.
    """
    free = list(dict.fromkeys(assigned))
    granted: list[AssignedAddress] = []
    refused: list[AssignedAddress] = []
    # Wishes for one address first, so that a wish for any does not take it away.
    for request in sorted(requests, key=lambda wish: wish.is_any):
        fitting = [prefix for prefix in free if _fulfils(prefix, request)]
        if not fitting:
            refused.append(refusal(request))
            continue
        chosen = max(fitting, key=lambda prefix: prefix.network.prefixlen)
        free.remove(chosen)
        granted.append(AssignedAddress(request.request_id, chosen))
    return [*granted, *(AssignedAddress(0, prefix) for prefix in free), *refused]


def _fulfils(prefix: IPInterface, request: RequestedAddress) -> bool:
    if prefix.version != request.prefix.version:
        return False
    if prefix.network.prefixlen > request.prefix.network.prefixlen:
        return False
    return request.is_any or request.prefix.ip in prefix.network


def encode_address_assign(addresses: Sequence[AssignedAddress]) -> bytes:
    """Return an ADDRESS_ASSIGN value: the full list of what the peer may use; empty withdraws everything.

    Raises:
        LocalProtocolError: a prefix has bits below its length, an ID is out of range, or the list is too long.
    """
    return _encode_prefixes([(address.request_id, address.prefix) for address in addresses])


def encode_address_request(requests: Sequence[RequestedAddress]) -> bytes:
    """Return an ADDRESS_REQUEST value.

    Raises:
        LocalProtocolError: the list is empty or too long, an ID is 0, or as for encode_address_assign.
    """
    if not requests:
        raise LocalProtocolError("an ADDRESS_REQUEST needs at least one entry")
    if any(request.request_id == 0 for request in requests):
        raise LocalProtocolError("Request ID 0 is reserved for unsolicited assignments")
    return _encode_prefixes([(request.request_id, request.prefix) for request in requests])


def encode_route_advertisement(ranges: Iterable[AddressRange]) -> bytes:
    """Return a ROUTE_ADVERTISEMENT value: the full list of what we route; empty withdraws everything.

    The order the RFC asks for is made here; any order may be given.

    Raises:
        LocalProtocolError: two ranges overlap, also one of every protocol and one of a single protocol.
    """
    ordered = sorted(ranges, key=_range_order)
    if len(ordered) > MAX_RANGES:
        raise LocalProtocolError(f"{len(ordered)} ranges, at most {MAX_RANGES} may be advertised")
    problem = _find_disorder(ordered) or _find_overlap(ordered)
    if problem:
        raise LocalProtocolError(problem)
    return b"".join(
        bytes((item.version,)) + item.start.packed + item.end.packed + bytes((item.protocol,)) for item in ordered
    )


def decode_address_assign(value: bytes, *, allow_host_bits: bool = False) -> list[AssignedAddress]:
    """Return the entries of an ADDRESS_ASSIGN value, in order, refusals among them.

    allow_host_bits: take addresses with bits below the prefix length; they keep them.

    Raises:
        PeerProtocolError: a rule of RFC 9484 §4.7.1 is broken, or there are more than MAX_ADDRESSES.
    """
    return [AssignedAddress(*entry) for entry in _decode_prefixes(value, allow_host_bits=allow_host_bits)]


def decode_address_request(value: bytes) -> list[RequestedAddress]:
    """Return the entries of an ADDRESS_REQUEST value, in order.

    Raises:
        PeerProtocolError: it is empty, an ID is 0 or there twice, another rule of RFC 9484 §4.7.2 is broken, or
            there are more than MAX_ADDRESSES.
    """
    requests = [RequestedAddress(*entry) for entry in _decode_prefixes(value, allow_host_bits=False)]
    if not requests:
        raise _malformed("an ADDRESS_REQUEST without entries")
    request_ids = {request.request_id for request in requests}
    if 0 in request_ids:
        raise _malformed("an ADDRESS_REQUEST with Request ID 0")
    if len(request_ids) < len(requests):
        raise _malformed("an ADDRESS_REQUEST with one Request ID twice")
    return requests


def decode_route_advertisement(value: bytes) -> list[AddressRange]:
    """Return the ranges of a ROUTE_ADVERTISEMENT value, in order.

    Raises:
        PeerProtocolError: a rule of RFC 9484 §4.7.3 is broken, order and overlap included, or there are more than
            MAX_RANGES. A range of every protocol that overlaps one of a single protocol is looked for, and
            therefore refused, though looking is optional.
    """
    fields = _Fields(value)
    ranges: list[AddressRange] = []
    while not fields.at_end():
        if len(ranges) == MAX_RANGES:
            raise _too_many("ranges", MAX_RANGES)
        version = fields.version()
        start, end, protocol = fields.address(version), fields.address(version), fields.byte()
        if int(start) > int(end):
            raise _malformed(f"a range whose start {start} is above its end {end}")
        ranges.append(AddressRange(start, end, protocol))
    problem = _find_disorder(ranges) or _find_overlap(ranges)
    if problem:
        raise _malformed(problem)
    return ranges


def _encode_prefixes(entries: Sequence[tuple[int, IPInterface]]) -> bytes:
    if len(entries) > MAX_ADDRESSES:
        raise LocalProtocolError(f"{len(entries)} addresses, at most {MAX_ADDRESSES} fit one capsule")
    parts = []
    for request_id, prefix in entries:
        if prefix.ip.packed != prefix.network.network_address.packed:
            raise LocalProtocolError(f"{prefix} has bits set below its prefix length")
        tail = bytes((prefix.network.prefixlen,))
        parts.append(encode_varint(request_id) + bytes((prefix.version,)) + prefix.ip.packed + tail)
    return b"".join(parts)


def _decode_prefixes(value: bytes, *, allow_host_bits: bool) -> list[tuple[int, IPInterface]]:
    fields = _Fields(value)
    entries: list[tuple[int, IPInterface]] = []
    while not fields.at_end():
        if len(entries) == MAX_ADDRESSES:
            raise _too_many("addresses", MAX_ADDRESSES)
        request_id, version = fields.varint(), fields.version()
        address, length = fields.address(version), fields.byte()
        if length > address.max_prefixlen:
            raise _malformed(f"a prefix length of {length} for IPv{version}")
        host_bits = int(address) & ((1 << (address.max_prefixlen - length)) - 1)
        if host_bits and not allow_host_bits:
            raise _malformed(f"{address}/{length}, which has bits set below its prefix length")
        kind = IPv4Interface if version == 4 else IPv6Interface
        entries.append((request_id, kind((int(address), length))))
    return entries


class _Fields:
    """The fields of one capsule value, read in order. Running out of bytes makes the capsule malformed."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._offset = 0

    def at_end(self) -> bool:
        return self._offset == len(self._value)

    def varint(self) -> int:
        decoded = decode_varint(self._value, self._offset)
        if decoded is None:
            raise _malformed("a capsule that ends inside an entry")
        value, self._offset = decoded
        return value

    def byte(self) -> int:
        return self._take(1)[0]

    def version(self) -> int:
        version = self.byte()
        if version not in (4, 6):
            raise _malformed(f"IP version {version}, neither 4 nor 6")
        return version

    def address(self, version: int) -> IPAddress:
        return IPv4Address(self._take(4)) if version == 4 else IPv6Address(self._take(16))

    def _take(self, count: int) -> bytes:
        taken = self._value[self._offset : self._offset + count]
        if len(taken) < count:
            raise _malformed("a capsule that ends inside an entry")
        self._offset += count
        return taken


def _range_order(item: AddressRange) -> tuple[int, int, int]:
    return item.version, item.protocol, int(item.start)


def _find_disorder(ranges: Sequence[AddressRange]) -> str | None:
    """Return what breaks the order of RFC 9484 §4.7.3, which also excludes overlap within one protocol."""
    for first, second in pairwise(ranges):
        if first.version > second.version:
            return "an IPv6 range ahead of an IPv4 range"
        if first.version < second.version:
            continue
        if first.protocol > second.protocol:
            return f"a range of protocol {first.protocol} ahead of one of protocol {second.protocol}"
        if first.protocol == second.protocol and int(first.end) >= int(second.start):
            return f"a range that ends at {first.end} ahead of one that starts at {second.start}"
    return None


def _find_overlap(ranges: Sequence[AddressRange]) -> str | None:
    """Return which range of every protocol overlaps one of a single protocol. ranges are in order."""
    wildcards: defaultdict[int, list[AddressRange]] = defaultdict(list)
    for item in ranges:
        if item.protocol == ANY_PROTOCOL:
            wildcards[item.version].append(item)
    starts = {version: [int(item.start) for item in items] for version, items in wildcards.items()}
    for item in ranges:
        if item.protocol == ANY_PROTOCOL or item.version not in starts:
            continue
        # Wildcards are disjoint and sorted: the last to start at or before our end is the only candidate.
        index = bisect_left(starts[item.version], int(item.end) + 1) - 1
        if index >= 0 and int(wildcards[item.version][index].end) >= int(item.start):
            return f"a range of every protocol overlaps one of protocol {item.protocol} at {item.start}"
    return None


def _malformed(what: str) -> PeerProtocolError:
    return PeerProtocolError(f"the peer sent {what}", error_code=HttpErrorCode.H3_MESSAGE_ERROR)


def _too_many(what: str, limit: int) -> PeerProtocolError:
    return PeerProtocolError(
        f"the peer sent more than {limit} {what} in one capsule", error_code=HttpErrorCode.H3_EXCESSIVE_LOAD
    )
