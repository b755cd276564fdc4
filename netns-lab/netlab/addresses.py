"""The lab's addresses: 198.18.0.0/15 (RFC 2544) and 2001:db8::/32 (RFC 3849), which nobody's network uses."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Final

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
IPInterface = IPv4Interface | IPv6Interface

EVERYTHING: Final[dict[int, IPNetwork]] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}


@dataclass(frozen=True, slots=True)
class Subnet:
    """The n-th pair of networks (n from 1 to 510): 198.18.n.0/24 and 2001:db8:n::/64, n in hexadecimal there."""

    number: int

    @property
    def ipv4(self) -> IPv4Network:
        """The IPv4 network."""
        return IPv4Network((int(IPv4Address("198.18.0.0")) + (self.number << 8), 24))

    @property
    def ipv6(self) -> IPv6Network:
        """The IPv6 network."""
        return IPv6Network((int(IPv6Address("2001:db8::")) + (self.number << 80), 64))

    def interfaces(self, host: int) -> tuple[IPv4Interface, IPv6Interface]:
        """Return both families' addresses of a host number, with their prefix lengths."""
        return (
            IPv4Interface((self.ipv4[host], self.ipv4.prefixlen)),
            IPv6Interface((self.ipv6[host], self.ipv6.prefixlen)),
        )
