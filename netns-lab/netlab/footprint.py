"""Everything of a host a tunnel may change: to show that nothing is left when it has ended."""

from __future__ import annotations

import re
from typing import Final

from netlab import namespace
from netlab.host import Host

COMMANDS: Final = (
    ("ip", "-o", "link"),
    ("ip", "-o", "addr"),
    ("ip", "-4", "route", "show", "table", "all"),
    ("ip", "-6", "route", "show", "table", "all"),
    ("ip", "-4", "rule"),
    ("ip", "-6", "rule"),
    ("nft", "-s", "list", "ruleset"),
)
VOLATILE: Final = re.compile(r" (expires|age|valid_lft|preferred_lft) \S+")


def footprint(host: Host) -> list[str]:
    """Return one line for each link, address, route, rule, nft line and network sysctl of the host."""
    lines: list[str] = []
    for command in COMMANDS:
        shown = host.run(command, check=False).stdout.splitlines()
        lines += [f"{' '.join(command[:3])}: {VOLATILE.sub('', line).strip()}" for line in shown]
    return lines + [f"sysctl {key} = {value}" for key, value in namespace.read_sysctls(host.namespace).items()]
