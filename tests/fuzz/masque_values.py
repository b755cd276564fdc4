"""Random values of the tunnel's vocabulary: prefixes, lists and ranges that keep RFC 9484 §4.7."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

from hypothesis import strategies as st

from qtunnel.config import IPAddress, IPInterface
from qtunnel.errors import QTunnelError
from qtunnel.masque.address_capsules import AddressRange
from qtunnel.masque.varint import MAX_VARINT


def result_or_error(call: Callable[[], object]) -> object:
    """Return what the call returns or the error of ours it raises; any other error is a failure of the test."""
    try:
        return call()
    except QTunnelError as error:
        return error


request_ids = st.integers(1, MAX_VARINT)
protocols = st.integers(1, 255)


@st.composite
def prefixes(draw: st.DrawFn) -> IPInterface:
    """A prefix of either family whose bits below its length are zero."""
    if draw(st.booleans()):
        network4 = IPv4Network((draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 32))), strict=False)
        return IPv4Interface((network4.network_address, network4.prefixlen))
    network6 = IPv6Network((draw(st.integers(0, 2**128 - 1)), draw(st.integers(0, 128))), strict=False)
    return IPv6Interface((network6.network_address, network6.prefixlen))


@st.composite
def ranges(draw: st.DrawFn) -> list[AddressRange]:
    """Ranges in any order that do not overlap: consecutive pairs out of a sorted list of distinct addresses.

    All of a family share one protocol or none, so that none of every protocol overlaps one of a single protocol.
    """
    found: list[AddressRange] = []
    kinds: tuple[tuple[int, type[IPv4Address | IPv6Address]], ...] = ((32, IPv4Address), (128, IPv6Address))
    for bits, kind in kinds:
        points = draw(st.lists(st.integers(0, 2**bits - 1), max_size=8, unique=True))
        points = sorted(points)[: len(points) // 2 * 2]
        protocol = draw(st.just(0) | protocols)
        addresses: list[IPAddress] = [kind(point) for point in points]
        found += [AddressRange(*pair, protocol) for pair in zip(addresses[::2], addresses[1::2], strict=True)]
    return draw(st.permutations(found))


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in pieces, empty ones among them."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
