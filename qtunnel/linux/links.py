"""The host's interfaces, addresses and routes: what there is now, and when it changes.

All calls are plain and answered by the kernel at once; none needs root.
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from qtunnel.errors import SystemSetupError, TunLostError
from qtunnel.linux.netlink import MAIN_TABLE, Netlink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtunnel.burst import Address
    from qtunnel.linux.netlink import Link

__all__ = [
    "ChangeKind",
    "LinkFollower",
    "OutgoingInterface",
    "check_tun_is_there",
    "host_addresses",
    "interface_mtu",
    "outgoing_interface",
    "outgoing_mtu",
]

IPAddress = IPv4Address | IPv6Address

_USUAL_MTU: Final = 1500
_MAX_MTU: Final = 65535  # the loopback interface says 65536, which no IP packet can be


@dataclass(frozen=True, slots=True)
class OutgoingInterface:
    """The interface a packet would leave by.

    mtu: the largest IP packet, in bytes. source: the address it would have, if the kernel says.
    """

    name: str
    mtu: int
    source: IPAddress | None


def outgoing_interface(remote: IPAddress) -> OutgoingInterface:
    """Return how the kernel would send to remote at this moment, policy rules included.

    mtu counts an MTU the administrator gave the route, and not one that was learnt by ICMP.

    Raises:
        SystemSetupError: there is no route.
    """
    try:
        with Netlink() as netlink:
            route = netlink.route_to(remote)
            links = {link.index: link for link in netlink.links()}
    except OSError as error:
        raise SystemSetupError(
            f"no route to {remote} ({error.strerror})", remedy=f"See: ip route get {remote}"
        ) from error
    link = links[route.index]
    return OutgoingInterface(link.name, min(link.mtu, route.mtu or _MAX_MTU, _MAX_MTU), route.source)


def outgoing_mtu(remote: Address) -> int:
    """Return the MTU towards a UDP address; 1500, the usual one, where there is no route (sending will say so)."""
    try:
        return outgoing_interface(ip_address(remote[0])).mtu
    except SystemSetupError:
        return _USUAL_MTU


def interface_mtu(address: IPAddress) -> int:
    """Return the MTU of the interface that has this address.

    For 0.0.0.0 and :: it is the interface of the main table's default route, or without one the smallest of any
    interface that is up; for an address the host does not have, 1500.
    """
    with Netlink() as netlink:
        links = {link.index: link for link in netlink.links()}
        if address.is_unspecified:
            routes = netlink.routes(address.version)
            defaults = [
                route.index for route in routes if route.table == MAIN_TABLE and not route.network.prefixlen
            ]
            candidates = [links[index].mtu for index in defaults if index in links]
            candidates = candidates or [link.mtu for link in links.values() if link.is_up and not link.is_loopback]
        else:
            own = [each.index for each in netlink.addresses() if each.interface.ip == address]
            candidates = [links[index].mtu for index in own if index in links]
    return min(*candidates, _MAX_MTU) if candidates else _USUAL_MTU


def check_tun_is_there(name: str, *, must_be_up: bool = True) -> None:
    """Look at a TUN that we made.

    Raises:
        TunLostError: it is gone, or is down, which takes its routes and IPv6 addresses away.
    """
    try:
        with Netlink() as netlink:
            is_up = netlink.link(name).is_up
    except OSError as error:
        if error.errno != errno.ENODEV:
            return  # the kernel does not say; nothing follows from that
        raise TunLostError(f"{name} was deleted by another program", remedy="Start the tunnel again") from error
    if must_be_up and not is_up:
        raise TunLostError(f"{name} was taken down by another program", remedy="Start the tunnel again")


def host_addresses(*, except_interface: str | None = None) -> frozenset[IPAddress]:
    """Return the addresses of all interfaces, or of all but one; loopback and link-local ones included."""
    with Netlink() as netlink:
        skipped = _index_of(netlink.links(), except_interface)
        return frozenset(each.interface.ip for each in netlink.addresses() if each.index != skipped)


def _index_of(links: list[Link], name: str | None) -> int | None:
    return next((link.index for link in links if link.name == name), None)


class ChangeKind(Enum):
    """What a notification is about."""

    LINK = "link"
    ADDRESS = "address"
    ROUTE = "route"


_GROUPS: Final = 0x1 | 0x10 | 0x40 | 0x100 | 0x400  # link, IPv4 address and route, IPv6 address and route
_KINDS: Final = {
    16: ChangeKind.LINK,  # RTM_NEWLINK, RTM_DELLINK
    17: ChangeKind.LINK,
    20: ChangeKind.ADDRESS,  # RTM_NEWADDR, RTM_DELADDR
    21: ChangeKind.ADDRESS,
    24: ChangeKind.ROUTE,  # RTM_NEWROUTE, RTM_DELROUTE
    25: ChangeKind.ROUTE,
}
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port: struct nlmsghdr
_INDEX = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")  # length, type: struct rtattr
_RTMSG_SIZE: Final = 12
_RTA_OIF: Final = 4
_MAX_READS: Final = 64
_RECEIVE_SIZE: Final = 1 << 16
_RECEIVE_BUFFER: Final = 1 << 20


class LinkFollower:
    """Reports that interfaces, addresses or routes have changed. Poll fileno() for reading, then read().

    addresses: the host's, as of the last refresh_addresses(). ignored: indices of interfaces whose changes are not
    reported (the tunnel's own).
    """

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK,
                socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
                socket.NETLINK_ROUTE,
            )
        except OSError as error:
            raise SystemSetupError(f"cannot open a netlink socket ({error.strerror})") from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.bind((0, _GROUPS))
        self.ignored: set[int] = set()
        self.addresses = host_addresses()

    def __enter__(self) -> LinkFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor to poll; -1 when closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        self._socket.close()

    def read(self) -> set[ChangeKind]:
        """Return the kinds of change since the last call, empty when there was none that matters.

        When there were more notifications than the kernel could keep, all kinds are returned. Never raises.
        """
        kinds: set[ChangeKind] = set()
        for _ in range(_MAX_READS):
            try:
                data, (port, _) = self._socket.recvfrom(_RECEIVE_SIZE)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    break
                kinds.update(ChangeKind)
                continue
            if port == 0:  # from the kernel; other programs may write to this socket, too
                kinds.update(self._kinds(data))
        return kinds

    def refresh_addresses(self) -> bool:
        """Take a new snapshot into addresses; return whether it differs from the last."""
        addresses = host_addresses()
        changed = addresses != self.addresses
        self.addresses = addresses
        return changed

    def _kinds(self, data: bytes) -> Iterator[ChangeKind]:
        offset = 0
        while offset + _HEADER.size <= len(data):
            length, message_type, _, _, _ = _HEADER.unpack_from(data, offset)
            if length < _HEADER.size:
                return
            kind = _KINDS.get(message_type)
            if kind is not None and _interface_index(kind, data[offset + _HEADER.size : offset + length]) not in (
                self.ignored
            ):
                yield kind
            offset += (length + 3) & ~3


def _interface_index(kind: ChangeKind, body: bytes) -> int | None:
    """Return the interface a notification is about, None for a route with several or none."""
    if kind is not ChangeKind.ROUTE:
        return _INDEX.unpack_from(body, 4)[0] if len(body) >= 8 else None
    offset = _RTMSG_SIZE
    while offset + _ATTRIBUTE.size <= len(body):
        length, attribute = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size:
            return None
        if attribute == _RTA_OIF and length >= _ATTRIBUTE.size + _INDEX.size and offset + length <= len(body):
            return int(_INDEX.unpack_from(body, offset + _ATTRIBUTE.size)[0])
        offset += (length + 3) & ~3
    return None
