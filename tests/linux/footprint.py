"""Everything of a host that a tunnel may change, to compare before and after."""

from __future__ import annotations

import difflib
import re

from tests.linux.namespaces import Namespace

COMMANDS = (
    "ip -details rule",
    "ip -6 -details rule",
    "ip -4 route show table all",
    "ip -6 route show table all",
    "ip -details address",
    "nft list ruleset",
)
_SYSCTLS = "sh -c 'cd /proc/sys/net; grep -rs . ipv4/ip_forward ipv4/conf ipv6/conf || true'"
_VOLATILE = re.compile(r"qdisc \S+| expires \S+")


def footprint(host: Namespace) -> dict[str, str]:
    """Return it as text, by the command that shows it."""
    found = {command: host.run(command) for command in COMMANDS}
    found["sysctls"] = host.run(_SYSCTLS)
    return {key: _stable(text) for key, text in found.items()}


def assert_same_footprint(host: Namespace, before: dict[str, str], *, except_for: str = "") -> None:
    """Compare with an earlier footprint(); except_for: a regular expression of lines that may differ."""
    now = footprint(host)
    differences = [
        line
        for key, text in before.items()
        for line in difflib.unified_diff(text.splitlines(), now[key].splitlines(), "before", key, lineterm="", n=0)
        if not (except_for and re.search(except_for, line))
        if not line.startswith("@@") and not line.startswith("--- before") and not line.startswith(f"+++ {key}")
    ]
    assert differences == [], "\n".join(differences)


def _stable(text: str) -> str:
    """Drop what changes by itself: the time an address has left, the queue a link gets when it first comes up."""
    lines = [line for line in text.splitlines() if "stable_secret" not in line and "valid_lft" not in line]
    return _VOLATILE.sub("", "\n".join(lines))
