"""A network of hosts and links that is taken down whatever happens: the context every experiment runs in."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

from netlab.addresses import EVERYTHING, IPAddress, Subnet
from netlab.backends import Backend, choose
from netlab.errors import Interrupted
from netlab.host import Host
from netlab.ledger import Ledger

_MAIN_PROCESS: Final = os.getpid()


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a link: the host, its device there, and its addresses."""

    host: Host
    device: str
    ipv4: IPv4Interface
    ipv6: IPv6Interface
    hardware_address: str

    def address(self, version: int) -> IPAddress:
        """Return the address of IP version 4 or 6."""
        return self.ipv4.ip if version == 4 else self.ipv6.ip


@dataclass(frozen=True, slots=True)
class Link:
    """A veth pair between two hosts, and the networks on it."""

    a: LinkEnd
    b: LinkEnd
    subnet: Subnet

    def end(self, host: Host) -> LinkEnd:
        """Return the end that is at a host."""
        return self.a if self.a.host is host else self.b

    def other_end(self, host: Host) -> LinkEnd:
        """Return the end that is not at a host."""
        return self.b if self.a.host is host else self.a

    def route_default(self, host: Host) -> None:
        """Send everything that a host has no other route for over this link."""
        for version, everything in EVERYTHING.items():
            host.route(everything, via=self.other_end(host).address(version))


class Network:
    """Hosts and links of one run. Use as a context manager; SIGTERM and SIGHUP then end it in order, too."""

    def __init__(self, *, backend: str | None = None) -> None:
        self._backend_name = backend
        self._backend: Backend | None = None
        self.hosts: dict[str, Host] = {}
        self.links: list[Link] = []

    def __enter__(self) -> Self:
        self._old_handlers = {
            number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
        }
        self._ledger = Ledger.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not leave half of it behind.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in self._old_handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            if self._backend is not None:
                self._backend.close()
            for host in self.hosts.values():
                host.close()
        finally:
            self._ledger.take_down()
            signal.signal(signal.SIGINT, interrupt)
            for number, handler in self._old_handlers.items():
                signal.signal(number, handler)

    @property
    def tag(self) -> str:
        """What tells this run's names from those of another."""
        return self._ledger.tag

    @property
    def directory(self) -> Path:
        """A directory for files of this run; only root can look inside, and it is removed at the end."""
        return self._ledger.directory

    def backend(self, host: Host) -> Backend:
        """Return what shapes links here, chosen (by trying on a host) when first asked for."""
        if self._backend is None:
            self._backend = choose(self._backend_name, host, self._ledger)
        return self._backend

    @property
    def backend_name(self) -> str:
        """What shapes links here; empty as long as nothing does."""
        return "" if self._backend is None else self._backend.name

    def host(self, name: str, *, forwards: bool = False, sysctls: Mapping[str, str] | None = None) -> Host:
        """Make a host; one that forwards is a router."""
        host = Host(name, self._ledger, forwards=forwards, sysctls=sysctls or {})
        self.hosts[name] = host
        return host

    def link(
        self,
        a: Host,
        b: Host,
        *,
        mtu: int = 1500,
        permanent_neighbours: bool = True,
        offload: bool = True,
    ) -> Link:
        """Connect two hosts by a veth pair with addresses .1 (a) and .2 (b) of the next subnet.

        Devices are named after both hosts, own one first. Without offload a device sends packets as they would
        be on a wire, not as super-packets of up to 64 KB: needed wherever sizes are captured or limited.
        """
        subnet = Subnet(len(self.links) + 1)
        link = Link(_end(a, b, subnet, 1), _end(b, a, subnet, 2), subnet)
        a.netlink.link(
            "add",
            ifname=link.a.device,
            kind="veth",
            mtu=mtu,
            address=link.a.hardware_address,
            peer={
                "ifname": link.b.device,
                "mtu": mtu,
                "address": link.b.hardware_address,
                "net_ns_fd": b.namespace,
            },
        )
        for end, other in ((link.a, link.b), (link.b, link.a)):
            _bring_up(end, other, offload=offload, permanent_neighbours=permanent_neighbours)
        self.links.append(link)
        return link


def _bring_up(end: LinkEnd, other: LinkEnd, *, offload: bool, permanent_neighbours: bool) -> None:
    host = end.host
    if not offload:
        # Without checksum offload the kernel segments TSO and UDP GSO in software, before the device.
        host.run(["ethtool", "-K", end.device, "tx", "off"])
    host.set_up(end.device)
    for interface in (end.ipv4, end.ipv6):
        host.add_address(end.device, interface)
    if permanent_neighbours:
        for interface in (other.ipv4, other.ipv6):
            host.add_neighbour(end.device, interface.ip, other.hardware_address)


def _end(host: Host, other: Host, subnet: Subnet, number: int) -> LinkEnd:
    device = f"{host.name}-{other.name}"
    return LinkEnd(host, device, *subnet.interfaces(number), _mac(subnet.number, number))


def _mac(subnet: int, number: int) -> str:
    return f"02:00:00:{subnet >> 8:02x}:{subnet & 0xFF:02x}:{number:02x}"


def _interrupt(number: int, _frame: FrameType | None) -> None:
    if os.getpid() != _MAIN_PROCESS:
        # pyroute2 opens sockets in a forked child, which it then ends: that must not take our network down.
        os._exit(128 + number)
    raise Interrupted(f"ended by {signal.Signals(number).name}")
