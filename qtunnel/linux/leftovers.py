"""What a run that was killed has left behind: policy rules, an nftables table, and forwarding switched on.

Its TUN took its addresses and routes with it. Rules are found by their priority and by the protocol number that
marks them as ours, tables by their name, and forwarding by the note about it (qtunnel.linux.forwarding_journal).
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from qtunnel.errors import SystemSetupError
from qtunnel.linux.forwarding import Forwarding
from qtunnel.linux.netlink import MAIN_TABLE, PROTOCOL, refusal
from qtunnel.linux.nft import table_name
from qtunnel.linux.policy_rules import RULES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from qtunnel.linux.netlink import Netlink, Route, Rule
    from qtunnel.linux.nft import Nft

__all__ = ["leftover_rules", "live_owner", "remove_leftovers", "restore_forwarding"]

logger = logging.getLogger(__name__)


def remove_leftovers(netlink: Netlink, nft: Nft, *, table: int | None, rule_priority: int, own_index: int) -> None:
    """Remove what a killed run with the same settings left. own_index: our TUN's. table: None looks for no rules.

    Raises:
        SystemSetupError: it is not left, but in use by another tunnel; or the kernel refused.
    """
    names = {link.index: link.name for link in netlink.links()}
    if table is not None:
        for version in (4, 6):
            _remove_rules(netlink, version, table, rule_priority, own_index, names)
    _remove_tables(nft, in_use={table_name(name) for index, name in names.items() if index != own_index})


def restore_forwarding(journal: Path | None) -> None:
    """Put forwarding back where a killed run left it on and no living one needs it."""
    for version in (4, 6):
        try:
            if Forwarding(version, journal=journal).restore():
                logger.info("put IPv%d forwarding back, which an earlier run left on", version)
        except SystemSetupError as error:
            logger.warning("cannot put IPv%d forwarding back, which an earlier run left on: %s", version, error)


def leftover_rules(rules: Iterable[Rule], priority: int, table: int) -> list[Rule]:
    """Return those that a run with the same settings left: at our priorities, marked as ours or for our table."""
    return [
        rule
        for rule in rules
        if priority <= rule.priority < priority + RULES and (rule.protocol == PROTOCOL or rule.table == table)
    ]


def live_owner(leftovers: Iterable[Rule], routes: Iterable[Route], table: int, own_index: int) -> int | None:
    """Return the interface of another tunnel that uses our table or priorities now, or None.

    A run that was killed has no routes any more, as these went with its TUN.
    """
    tables = {table} | {rule.table for rule in leftovers} - {MAIN_TABLE}
    for route in routes:
        is_ours = route.protocol == PROTOCOL and route.index not in (None, own_index)
        if is_ours and route.table in tables:
            return route.index
    return None


def _remove_rules(
    netlink: Netlink, version: int, table: int, rule_priority: int, own_index: int, names: Mapping[int, str]
) -> None:
    try:
        found = leftover_rules(netlink.rules(version), rule_priority, table)
        owner = live_owner(found, netlink.routes(version), table, own_index)
    except OSError as error:
        if error.errno in (errno.EAFNOSUPPORT, errno.EOPNOTSUPP):
            return  # no such IP version, or no policy routing: no leftovers either
        raise refusal("read the routing rules", error) from error
    if owner is not None:
        raise SystemSetupError(
            f"the routing table {table} or the rule priorities from {rule_priority} are in use by the tunnel "
            f"on {names.get(owner, 'another interface')}",
            remedy="Give this tunnel another route_table and rule_priority (--table, --priority)",
        )
    for rule in found:
        _remove_rule(netlink, rule)


def _remove_rule(netlink: Netlink, rule: Rule) -> None:
    logger.info("removing a routing rule of priority %d left by an earlier run", rule.priority)
    try:
        netlink.remove_rule(rule)
    except FileNotFoundError:
        pass  # somebody was faster
    except OSError as error:
        raise refusal("remove a routing rule left by an earlier run", error) from error


def _remove_tables(nft: Nft, *, in_use: Collection[str]) -> None:
    if not nft.is_available:
        return
    try:
        for name in nft.our_tables():
            if name not in in_use:
                logger.info("removing the nftables table %s left by an earlier run", name)
                nft.remove_table(name)
    except SystemSetupError as error:
        logger.debug("cannot look for nftables tables of an earlier run: %s", error)
