"""What a router can be told to do to packets, by switch and at any time: size, silence, fragments, death, NAT.

An MTU is a route's, not a device's: a veth with a smaller MTU on one side drops in the other direction too, and
super-packets pass it. Rules go into chains prepared at the start, as removing a table makes the kernel drop what
NFQUEUE holds. The chains that look at fragments come before -400, where connection tracking would reassemble.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final

from netlab import namespace
from netlab.host import Host

TABLES: Final = """
table inet lab {{
	chain silence {{
		type filter hook output priority 0; policy accept;
	}}
	chain fragments {{
		type filter hook prerouting priority -450; policy accept;
	}}
	chain death {{
		type filter hook prerouting priority -440; policy accept;
	}}
	chain deathout {{
		type filter hook output priority -440; policy accept;
	}}
}}
{egress}
"""
EGRESS: Final = """
table netdev lab{number} {{
	chain fragments {{
		type filter hook egress device "{device}" priority 0; policy accept;
	}}
}}
"""
NAT: Final = """
table inet labnat {{
	chain post {{
		type nat hook postrouting priority 100; policy accept;
		oifname "{device}" masquerade fully-random
	}}
}}
"""
SILENCE: Final = (
    "add rule inet lab silence icmp type destination-unreachable icmp code frag-needed counter drop",
    "add rule inet lab silence icmpv6 type packet-too-big counter drop",
)
FRAGMENTS: Final = (
    "add rule inet lab fragments ip frag-off & 0x3fff != 0 counter drop",
    "add rule inet lab fragments exthdr frag exists counter drop",
)
NETFILTER: Final = 12
CONNTRACK_DELETE: Final = 1 << 8 | 2


class Router:
    """The switches of a host that forwards. devices are those it forwards between."""

    def __init__(self, host: Host, devices: Sequence[str]) -> None:
        self.host = host
        self._devices = tuple(devices)
        egress = "".join(EGRESS.format(number=n, device=device) for n, device in enumerate(self._devices))
        self._nft(TABLES.format(egress=egress))

    def set_silent(self, on: bool) -> None:
        """Say nothing about packets that are too big: the ICMP black hole."""
        self._switch("inet lab silence", SILENCE if on else ())

    def set_drops_fragments(self, on: bool) -> None:
        """Drop fragments that arrive, and those the router makes itself."""
        self._switch("inet lab fragments", FRAGMENTS if on else ())
        for number in range(len(self._devices)):
            # What the router cuts itself is seen at the device's egress only.
            rules = (
                f"add rule netdev lab{number} fragments ip frag-off & 0x3fff != 0 counter drop",
                f"add rule netdev lab{number} fragments meta protocol ip6 exthdr frag exists counter drop",
            )
            self._switch(f"netdev lab{number} fragments", rules if on else ())

    def set_dead(self, on: bool, *, version: int | None = None) -> None:
        """Lose everything (of one IP version) without a word; the devices stay up."""
        what = "" if version is None else f"meta nfproto ipv{version}"
        for chain, direction in (("death", "iifname"), ("deathout", "oifname")):
            rules = [
                f'add rule inet lab {chain} {what} {direction} "{device}" counter drop' for device in self._devices
            ]
            self._switch(f"inet lab {chain}", rules if on else ())

    def enable_nat(self, device: str) -> None:
        """Hide what leaves by a device behind the router's address, each flow behind a random port."""
        self._nft(NAT.format(device=device))

    def forget_nat(self) -> None:
        """Lose all mappings, as a NAT that restarts does: the next packet of each flow gets another port."""
        with (
            namespace.entered(self.host.namespace),
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER) as netfilter,
        ):
            for family in (socket.AF_INET, socket.AF_INET6):
                netfilter.send(struct.pack("=IHHIIBBH", 20, CONNTRACK_DELETE, 1, 0, 0, family, 0, 0))

    def _switch(self, chain: str, rules: Sequence[str]) -> None:
        self._nft("\n".join([f"flush chain {chain}", *rules]) + "\n")

    def _nft(self, text: str) -> None:
        self.host.run(["nft", "-f", "-"], stdin=text)
