"""Everything that is set up on the host for a tunnel, and how it is undone.

Each change is noted before it is made, with what undoes it; undo_all() goes through the notes backwards. So it
also cleans up after a start that failed half-way. A change made twice is noted once. What a killed run has left is
removed by the next open() (qtunnel.linux.leftovers).

The methods are coroutines for the sake of their callers. None of them ever suspends: the kernel answers a netlink
request at once, and a change that cannot be cancelled half-way can be undone.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from typing import TYPE_CHECKING, Final

from qtunnel.errors import LocalProtocolError, SystemSetupError
from qtunnel.linux.forwarding import Forwarding
from qtunnel.linux.leftovers import remove_leftovers, restore_forwarding
from qtunnel.linux.netlink import Netlink, refusal
from qtunnel.linux.nft import Nft, table_name
from qtunnel.linux.policy_rules import server_rule, table_rules
from qtunnel.linux.sysctl import read_sysctl, write_sysctl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable
    from pathlib import Path
    from types import TracebackType

    from qtunnel.linux.netlink import Rule
    from qtunnel.linux.nft import Masquerade

__all__ = ["HostSetup"]

logger = logging.getLogger(__name__)

IPAddress = IPv4Address | IPv6Address
IPInterface = IPv4Interface | IPv6Interface
IPNetwork = IPv4Network | IPv6Network

IPV6_MIN_MTU: Final = 1280
"""RFC 8200 §5. On a link with less the kernel deletes every IPv6 address and route, for good."""
_GONE: Final = frozenset((errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.EADDRNOTAVAIL, errno.ENXIO))
"""What undoing may meet: it is undone already, perhaps because the TUN is gone."""
_STRICT: Final = 1
_LOOSE: Final = "2"


class HostSetup:
    """The host's side of one tunnel, around a TUN interface that exists. Use open(), and undo_all() at the end.

    The usual order: prepare_tun, set_tun_mtu, add_address, set_up; on a client set_server_addresses, add_route,
    add_table_rules; on a server add_route into the main table, enable_forwarding, set_masquerade.

    tun, tun_index: the interface's name and index. warnings: what could not be had and does not stop the tunnel;
    each with a remedy.
    """

    def __init__(
        self,
        tun: str,
        *,
        table: int | None,
        rule_priority: int,
        nft: str | None = None,
        journal: Path | None = None,
    ) -> None:
        self.tun = tun
        self.warnings: list[str] = []
        self._table = table
        self._priority = rule_priority
        self._nft = Nft(nft)
        self._journal = journal
        self._undo: dict[Hashable, tuple[str, Callable[[], object]]] = {}
        self._server_rules: set[Rule] = set()
        self._has_ipv6 = False
        try:
            self._netlink = Netlink()
        except OSError as error:
            raise SystemSetupError(f"cannot open a netlink socket ({error.strerror})") from error
        try:
            self.tun_index = self._netlink.link(tun).index
        except OSError as error:
            self._netlink.close()
            raise SystemSetupError(f"there is no interface {tun} ({error.strerror})") from error

    @classmethod
    async def open(
        cls,
        tun: str,
        *,
        table: int | None = 51821,
        rule_priority: int = 5180,
        nft: str | None = None,
        journal: Path | None = None,
    ) -> HostSetup:
        """Begin: remove what a killed run left behind. Nothing else is changed.

        table: the routing table for the tunnel's routes; None where there are to be none (a server), and no rules.
        rule_priority: the first of three. nft: the command. journal: the directory where all tunnels of this host
        note what forwarding was; None: a run that is killed leaves it on.

        Raises:
            SystemSetupError: another tunnel uses the table or the priorities, or permission is missing.
        """
        setup = cls(tun, table=table, rule_priority=rule_priority, nft=nft, journal=journal)
        try:
            remove_leftovers(
                setup._netlink, setup._nft, table=table, rule_priority=rule_priority, own_index=setup.tun_index
            )
            restore_forwarding(journal)
        except BaseException:
            setup._netlink.close()
            raise
        return setup

    async def __aenter__(self) -> HostSetup:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.undo_all()

    # -- the TUN itself

    async def prepare_tun(self, *, ipv6: bool) -> None:
        """Set the kernel's settings of the TUN; call before set_up().

        ipv6: the tunnel may carry IPv6; else IPv6 is switched off on the TUN, so that the kernel sends none of its
        own. A setting that only some cases need and that cannot be made is a warning: accept_local (the kernel is
        to believe ICMP errors that come from the TUN's own address) and rp_filter.

        Raises:
            SystemSetupError: IPv6 is wanted and the host has none.
        """
        self._has_ipv6 = ipv6
        self._set_ipv6_settings()
        self._set_or_warn(f"net/ipv4/conf/{self.tun}/accept_local", "1", accepted=self._is_local_accepted())
        # The kernel takes the larger of both: 2 (any route back will do) wins over a strict 1 of "all".
        device = f"net/ipv4/conf/{self.tun}/rp_filter"
        values = [read_sysctl(key) or "0" for key in ("net/ipv4/conf/all/rp_filter", device)]
        self._set_or_warn(device, _LOOSE, accepted=max(map(int, values)) != _STRICT)

    async def set_up(self) -> None:
        """Take the TUN up."""
        self._do(
            "up",
            f"take {self.tun} up",
            lambda: self._netlink.set_link(self.tun_index, is_up=True),
            lambda: self._netlink.set_link(self.tun_index, is_up=False),
        )

    async def set_tun_mtu(self, mtu: int) -> None:
        """Set the TUN's MTU, in bytes of the inner IP packet.

        Raises:
            LocalProtocolError: below 1280 while the TUN has an IPv6 address.
            SystemSetupError: the kernel refused it.
        """
        before = self._tun_mtu()
        if mtu < IPV6_MIN_MTU and self._has_ipv6_address():
            raise LocalProtocolError(
                f"an MTU of {mtu} would make the kernel delete the IPv6 addresses and routes of {self.tun}; "
                f"at least {IPV6_MIN_MTU}, or remove them first"
            )
        if mtu == before:
            return
        self._do(
            "mtu",
            f"set the MTU of {self.tun} to {mtu}",
            lambda: self._netlink.set_link(self.tun_index, mtu=mtu),
            lambda: self._netlink.set_link(self.tun_index, mtu=before),
        )
        if before < IPV6_MIN_MTU <= mtu:
            self._set_ipv6_settings()  # the kernel has just made them anew, with its defaults
            self._remove_link_local_addresses()

    async def add_address(self, address: IPInterface, *, prefix_route: bool = True) -> None:
        """Give the TUN an address, usable at once. prefix_route: also the route to its network, in the main table.

        Raises:
            LocalProtocolError: an IPv6 address while the TUN's MTU is below 1280.
            SystemSetupError: the kernel refused it.
        """
        if address.version == 6 and self._tun_mtu() < IPV6_MIN_MTU:
            raise LocalProtocolError(
                f"{self.tun} has an MTU below {IPV6_MIN_MTU}, on which the kernel allows no IPv6"
            )
        self._do(
            ("address", address),
            f"give {self.tun} the address {address}",
            lambda: self._netlink.add_address(self.tun_index, address, prefix_route=prefix_route),
            lambda: self._netlink.remove_address(self.tun_index, address),
        )

    async def remove_address(self, address: IPInterface) -> None:
        """Take an address away that add_address() gave. One that is not there is no error."""
        self._undo_one(("address", address))

    # -- routes and rules

    async def add_route(
        self,
        network: IPNetwork,
        *,
        table: int | None = None,
        mtu: int | None = None,
        source: IPAddress | None = None,
    ) -> None:
        """Route a network into the TUN; again with another mtu or source changes it.

        table: None for the tunnel's own, which add_table_rules() leads to. mtu: a limit below the TUN's MTU, for
        IPv4 only where that is below 1280. source: the address packets of this host get.
        """
        where = self._own_table() if table is None else table
        self._do(
            ("route", where, network),
            f"route {network} into {self.tun}",
            lambda: self._netlink.replace_route(
                network, table=where, index=self.tun_index, mtu=mtu, source=source
            ),
            lambda: self._netlink.remove_route(network, table=where, index=self.tun_index),
        )

    async def remove_route(self, network: IPNetwork, *, table: int | None = None) -> None:
        """Remove a route that add_route() made. One that is not there is no error."""
        self._undo_one(("route", self._own_table() if table is None else table, network))

    async def add_table_rules(self, versions: Collection[int] = (4, 6)) -> None:
        """Make the tunnel's table count for the whole host, after the host's own networks.

        Call set_server_addresses() first: from here on a default route in the table takes everything else.
        """
        for version in versions:
            for rule in table_rules(version, self._priority, self._own_table()):
                self._add_rule(rule)

    async def set_server_addresses(self, addresses: Collection[IPAddress]) -> None:
        """Keep packets to exactly these addresses outside the tunnel: the server's, or any that must stay outside.

        New ones are added before old ones go, so that no packet to the server ever enters the tunnel.
        """
        wanted = {server_rule(address, self._priority) for address in addresses}
        for rule in sorted(wanted - self._server_rules, key=str):
            self._add_rule(rule)
        for rule in self._server_rules - wanted:
            self._undo_one(rule)
        self._server_rules = wanted

    async def replace_server_rule(self, address: IPAddress) -> None:
        """Keep packets to the server's (new) address outside the tunnel, and no longer those to the old one."""
        await self.set_server_addresses([address])

    # -- forwarding and nftables

    async def enable_forwarding(self, *, ipv4: bool = True, ipv6: bool = True) -> None:
        """Let the kernel forward packets between the TUN and other interfaces.

        Raises:
            SystemSetupError: the setting cannot be changed; names the sysctl.
        """
        for version, wanted in ((4, ipv4), (6, ipv6)):
            if wanted and ("forwarding", version) not in self._undo:
                forwarding = Forwarding(version, journal=self._journal)
                self._undo["forwarding", version] = (f"restore IPv{version} forwarding", forwarding.restore)
                forwarding.switch_on()

    async def set_masquerade(self, masquerade: Masquerade) -> None:
        """Make, or make anew, the tunnel's nftables table.

        Raises:
            SystemSetupError: the nft command is missing (says what to install) or refuses.
        """
        name = table_name(self.tun)
        if self._nft.is_available:
            self._undo.setdefault(
                "nft", (f"remove the nftables table {name}", lambda: self._nft.remove_table(name))
            )
        self._nft.make_table(self.tun, masquerade)

    async def set_sysctl(self, key: str, value: str) -> None:
        """Change a kernel setting, by its path below /proc/sys; undone only if nobody changes it meanwhile.

        Raises:
            SystemSetupError: there is none, or we may not; names the command that would set it.
        """
        self._set_sysctl(key, value)

    # -- the end

    async def undo_all(self) -> None:
        """Undo every change, the last one first. Never raises: what cannot be undone is logged. Then unusable."""
        while self._undo:
            _, (what, undo) = self._undo.popitem()
            self._try_undo(what, undo)
        self._server_rules.clear()
        self._netlink.close()

    # -- how

    def _do(self, key: Hashable, what: str, change: Callable[[], None], undo: Callable[[], None]) -> None:
        """Note how to undo a change (once), then make it."""
        self._undo.setdefault(key, (what, undo))
        try:
            change()
        except OSError as error:
            raise refusal(what, error) from error

    def _own_table(self) -> int:
        if self._table is None:
            raise LocalProtocolError("this host set-up was opened without a routing table of its own")
        return self._table

    def _undo_one(self, key: Hashable) -> None:
        noted = self._undo.pop(key, None)
        if noted is not None:
            self._try_undo(*noted)

    @staticmethod
    def _try_undo(what: str, undo: Callable[[], object]) -> None:
        try:
            undo()
        except OSError as error:
            if error.errno not in _GONE:
                logger.warning("cannot undo: %s (%s)", what, error.strerror)
        except SystemSetupError as error:
            logger.warning("cannot undo: %s (%s)", what, error)

    def _add_rule(self, rule: Rule) -> None:
        def add() -> None:
            # One that is there is ours, from before: open() has removed, or refused, those of others.
            with contextlib.suppress(FileExistsError):
                self._netlink.add_rule(rule)

        self._do(
            rule,
            f"add a routing rule of priority {rule.priority}",
            add,
            lambda: self._netlink.remove_rule(rule),
        )

    def _set_sysctl(self, key: str, value: str) -> None:
        before = read_sysctl(key)
        if before == value:
            return

        def undo() -> None:
            if before is not None and read_sysctl(key) == value:
                write_sysctl(key, before)

        self._undo.setdefault(("sysctl", key), (f"set {key} back", undo))
        write_sysctl(key, value)

    def _set_or_warn(self, key: str, value: str, *, accepted: bool) -> None:
        """Make a setting that only some cases need; accepted: what there is will do."""
        if accepted:
            return
        try:
            self._set_sysctl(key, value)
        except SystemSetupError as error:
            self._undo.pop(("sysctl", key), None)
            if read_sysctl(key) == value:
                return
            logger.warning("%s", error)
            self.warnings.append(str(error))

    def _is_local_accepted(self) -> bool:
        keys = (f"net/ipv4/conf/{self.tun}/accept_local", "net/ipv4/conf/all/accept_local")
        return "1" in map(read_sysctl, keys)  # one of both is enough

    def _set_ipv6_settings(self) -> None:
        """Keep the kernel from making addresses of its own on the TUN and asking for routers (RFC 9484 §7.1)."""
        folder = f"net/ipv6/conf/{self.tun}"
        if read_sysctl(f"{folder}/disable_ipv6") is None:
            if self._has_ipv6 and self._tun_mtu() >= IPV6_MIN_MTU:
                raise SystemSetupError(
                    "this host has no IPv6",
                    remedy="Switch IPv6 off for the tunnel, or boot without ipv6.disable=1",
                )
            return
        if not self._has_ipv6:
            self._set_sysctl(f"{folder}/disable_ipv6", "1")
            return
        # Put back, addr_gen_mode makes a link-local address at once; an interface that is down had none.
        self._undo.setdefault(
            "link-local", (f"remove link-local addresses of {self.tun}", self._remove_link_local_if_down)
        )
        for name, value in (
            ("addr_gen_mode", "1"),  # none: no link-local address
            ("accept_ra", "0"),
            ("autoconf", "0"),
            ("router_solicitations", "0"),
            ("accept_dad", "0"),
            ("disable_ipv6", "0"),  # the host's default may be 1
        ):
            self._set_sysctl(f"{folder}/{name}", value)

    def _tun_mtu(self) -> int:
        try:
            return self._netlink.link(self.tun).mtu
        except OSError as error:
            raise SystemSetupError(f"the interface {self.tun} is gone ({error.strerror})") from error

    def _has_ipv6_address(self) -> bool:
        return any(
            each.index == self.tun_index and each.interface.version == 6 for each in self._netlink.addresses()
        )

    def _remove_link_local_if_down(self) -> None:
        if not self._netlink.link(self.tun).is_up:
            self._remove_link_local_addresses()

    def _remove_link_local_addresses(self) -> None:
        for each in self._netlink.addresses():
            if each.index == self.tun_index and each.interface.version == 6 and each.interface.ip.is_link_local:
                with contextlib.suppress(OSError):
                    self._netlink.remove_address(self.tun_index, each.interface)
