"""A host of the lab: one network namespace, with its addresses and routes, and commands run in it."""

from __future__ import annotations

import errno
import itertools
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from pyroute2 import NetNS
from pyroute2.netlink.exceptions import NetlinkError

from netlab import command, namespace
from netlab.addresses import IPAddress, IPInterface, IPNetwork
from netlab.command import Completed
from netlab.daemon import Daemon
from netlab.errors import LabError
from netlab.ledger import Ledger

NO_DAD: Final = 0x02
PERMANENT: Final = 0x80

BASE_SYSCTLS: Final = {
    # Before any link exists: duplicate address detection would hold IPv6 up for two seconds.
    "ipv6.conf.all.accept_dad": "0",
    "ipv6.conf.default.accept_dad": "0",
    "ipv6.conf.all.accept_ra": "0",
    "ipv6.conf.default.accept_ra": "0",
    "ipv6.conf.default.router_solicitations": "0",
    "ipv4.conf.all.rp_filter": "0",
    "ipv4.conf.default.rp_filter": "0",
    # Not what the machine happens to be set to. (The congestion controller cannot be set per namespace where it
    # is not among the unrestricted ones: experiments name it for each connection.)
    "ipv4.tcp_mtu_probing": "0",
    "ipv4.ping_group_range": "0 2147483647",
}
FORWARDING: Final = {"ipv4.ip_forward": "1", "ipv6.conf.all.forwarding": "1"}


class Host:
    """A namespace and what is run in it. Made by Network, which also takes it down."""

    def __init__(self, name: str, ledger: Ledger, *, forwards: bool, sysctls: Mapping[str, str]) -> None:
        self.name = name
        self.namespace = ledger.namespace(name)
        self.daemons: list[Daemon] = []
        self._ledger = ledger
        self._log_numbers = itertools.count(1)
        namespace.create(self.namespace)
        namespace.write_sysctls(self.namespace, BASE_SYSCTLS | (FORWARDING if forwards else {}) | dict(sysctls))
        self.netlink = NetNS(self.namespace)
        self.set_up("lo")

    def close(self) -> None:
        """End what runs here; the namespace itself goes with the ledger."""
        for daemon in reversed(self.daemons):
            daemon.stop()
        self.netlink.close()

    # Links, addresses, routes

    def index(self, device: str) -> int:
        """Return a device's number; LabError if there is none."""
        found: list[int] = self.netlink.link_lookup(ifname=device)
        if not found:
            raise LabError(f"host {self.name} has no device {device}")
        return found[0]

    def set_up(self, device: str) -> None:
        """Switch a device on."""
        self.netlink.link("set", index=self.index(device), state="up")

    def set_down(self, device: str) -> None:
        """Switch a device off; the other end of a veth pair loses its carrier."""
        self.netlink.link("set", index=self.index(device), state="down")

    def remove_device(self, device: str) -> None:
        """Delete a device, and with it the other end of a veth pair: as if the hardware were pulled out."""
        self.netlink.link("del", index=self.index(device))

    def add_address(self, device: str, interface: IPInterface) -> None:
        """Give a device an address."""
        flags: dict[str, Any] = {"flags": NO_DAD} if interface.version == 6 else {}
        self.netlink.addr(
            "add",
            index=self.index(device),
            address=str(interface.ip),
            prefixlen=interface.network.prefixlen,
            **flags,
        )

    def ensure_address(self, device: str, interface: IPInterface) -> None:
        """Give a device an address, unless it has it."""
        try:
            self.add_address(device, interface)
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise

    def remove_address(self, device: str, interface: IPInterface) -> None:
        """Take an address away."""
        self.netlink.addr(
            "del", index=self.index(device), address=str(interface.ip), prefixlen=interface.network.prefixlen
        )

    def add_neighbour(self, device: str, address: IPAddress, hardware_address: str) -> None:
        """Make a neighbour known for good, so that ARP and ND never take part in a measurement."""
        self.netlink.neigh(
            "replace", ifindex=self.index(device), dst=str(address), lladdr=hardware_address, state=PERMANENT
        )

    def route(
        self,
        destination: IPNetwork | str,
        *,
        via: IPAddress | None = None,
        device: str | None = None,
        mtu: int | None = None,
        table: int | None = None,
        metric: int | None = None,
    ) -> None:
        """Set a route by gateway or device; with mtu this host, if it forwards, is before a link of that MTU."""
        wanted: dict[str, Any] = {"dst": str(ip_network(str(destination)))}
        if via is not None:
            wanted["gateway"] = str(via)
        if device is not None:
            wanted["oif"] = self.index(device)
        if mtu is not None:
            wanted["metrics"] = {"mtu": mtu}
        if table is not None:
            wanted["table"] = table
        if metric is not None:
            wanted["priority"] = metric
        self.netlink.route("replace", **wanted)

    def add_rule(self, *, source: IPAddress, table: int) -> None:
        """Send what comes from an address of this host by the routes of a table."""
        family = socket.AF_INET if source.version == 4 else socket.AF_INET6
        self.netlink.rule(
            "add", family=family, src=str(source), src_len=source.max_prefixlen, table=table, priority=table
        )

    def device_mtu(self, device: str) -> int:
        """Return a device's MTU."""
        link = self.netlink.get_links(self.index(device))[0]
        return int(link.get_attr("IFLA_MTU"))

    def set_names(self, names: Mapping[str, Sequence[IPAddress]]) -> None:
        """Let this host, and it alone, resolve names to addresses: a hosts file of its own."""
        directory = self._ledger.configuration(self.namespace)
        lines = [f"{address} {name}" for name, addresses in names.items() for address in addresses]
        (directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", "::1 localhost", *lines]) + "\n")
        (directory / "nsswitch.conf").write_text("hosts: files\n")

    # Commands

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 30.0,
        check: bool = True,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Completed:
        """Run a command here to its end (see netlab.command.run)."""
        return command.run(
            [*self._prefix(), *argv],
            timeout=timeout,
            check=check,
            stdin=stdin,
            env=env,
            cwd=None if cwd is None else str(cwd),
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> Daemon:
        """Start a process here that runs until it is stopped or the network goes down."""
        log = self._ledger.directory / f"{self.name}-{name}-{next(self._log_numbers)}.log"
        daemon = Daemon([*self._prefix(), *argv], name=f"{name} on {self.name}", log=log, env=env, stdin=stdin)
        self.daemons.append(daemon)
        self._ledger.process(daemon.pid)
        return daemon

    def _prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace]
