"""The three policy rules that lead packets into the tunnel's routing table.

    P      to the server's address: table main       the tunnel's own packets never enter the tunnel
    P + 1  all: table main without its default route  networks the host is part of stay reachable
    P + 2  all: the tunnel's table                    the rest goes by the tunnel's routes

Records only; qtunnel.linux.host sends them to the kernel.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

from qtunnel.linux.netlink import MAIN_TABLE, Rule

__all__ = ["RULES", "server_rule", "table_rules"]

IPAddress = IPv4Address | IPv6Address

RULES: Final = 3
"""How many priorities are taken."""


def server_rule(address: IPAddress, priority: int) -> Rule:
    """Return the rule that keeps packets to the server's address outside the tunnel."""
    return Rule(
        version=address.version,
        priority=priority,
        table=MAIN_TABLE,
        destination=ip_network((address.packed, address.max_prefixlen)),
    )


def table_rules(version: int, priority: int, table: int) -> list[Rule]:
    """Return the rules for the host's own networks and for the tunnel's table."""
    return [
        Rule(version=version, priority=priority + 1, table=MAIN_TABLE, suppress_prefixlength=0),
        Rule(version=version, priority=priority + 2, table=table),
    ]
