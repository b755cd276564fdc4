"""rtnetlink in plain calls: links, addresses, routes and rules as typed records.

The messages are pyroute2's; the sending is ours. pyroute2's own asynchronous socket does not run on uvloop (which
knows no AF_NETLINK sockets), and its synchronous one not inside a running loop. The kernel answers a netlink
request before the send returns, in some 50 to 300 microseconds, so waiting for it in a loop costs nothing, and a
change that cannot be cancelled half-way can always be undone.

The calls raise OSError with the kernel's errno; refusal() puts it into words.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import TYPE_CHECKING, Any, Final

from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, rtnl
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.marshal import MarshalRtnl
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from qtunnel.errors import SystemSetupError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "LOCAL_TABLE",
    "MAIN_TABLE",
    "PROTOCOL",
    "Link",
    "LinkAddress",
    "Netlink",
    "Route",
    "RouteTo",
    "Rule",
    "refusal",
]

IPAddress = IPv4Address | IPv6Address
IPInterface = IPv4Interface | IPv6Interface
IPNetwork = IPv4Network | IPv6Network

MAIN_TABLE: Final = 254
LOCAL_TABLE: Final = 255
PROTOCOL: Final = 157
"""Who made a route or rule (rtnetlink's "protocol", shown by ip as "proto 157"). Ours alone, so leftovers show."""

_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_NLM_F_DUMP_INTR: Final = 0x10
_RECEIVE_SIZE: Final = 1 << 18
_DUMP_ATTEMPTS: Final = 5
_IFF_UP: Final = 1
_IFF_LOOPBACK: Final = 8
_IFA_F_NODAD: Final = 0x02
_IFA_F_NOPREFIXROUTE: Final = 0x200
_RTN_UNICAST: Final = 1
_RT_SCOPE_LINK: Final = 253
_FR_ACT_TO_TBL: Final = 1
_NO_SUPPRESSION: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface. mtu: bytes of the IP packet."""

    index: int
    name: str
    mtu: int
    is_up: bool
    is_loopback: bool


@dataclass(frozen=True, slots=True)
class LinkAddress:
    """An address of an interface, with its prefix length."""

    index: int
    interface: IPInterface


@dataclass(frozen=True, slots=True)
class Route:
    """A unicast, blackhole, unreachable or prohibit route. index: the interface it leaves by, if it has one."""

    network: IPNetwork
    table: int
    index: int | None
    protocol: int


@dataclass(frozen=True, slots=True)
class RouteTo:
    """What the kernel would do with a packet. mtu: the route's own limit; None for none, or one learnt by ICMP."""

    index: int
    source: IPAddress | None
    mtu: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A policy rule that looks a table up.

    destination: only packets to there. suppress_prefixlength: routes found in the table with a prefix no longer
    than that do not count (0: its default routes).
    """

    version: int
    priority: int
    table: int
    destination: IPNetwork | None = None
    suppress_prefixlength: int | None = None
    protocol: int = PROTOCOL


class Netlink:
    """A NETLINK_ROUTE socket of the network namespace it is opened in. Use as a context manager, or close()."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._socket.bind((0, 0))
        self._sequence = 0
        self._marshal: Any = MarshalRtnl()

    def __enter__(self) -> Netlink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        self._socket.close()

    # -- links

    def links(self) -> list[Link]:
        """Return every interface."""
        return [_link(message) for message in self._dump(ifinfmsg(), rtnl.RTM_GETLINK)]

    def link(self, name: str) -> Link:
        """Return one interface. Raises OSError (ENODEV) when there is none."""
        message = ifinfmsg()
        message["attrs"] = [("IFLA_IFNAME", name)]
        return _link(self._get(message, rtnl.RTM_GETLINK))

    def set_link(
        self, index: int, *, mtu: int | None = None, is_up: bool | None = None, gso_max_segments: int | None = None
    ) -> None:
        """Change an interface's MTU, take it up or down, or limit the segments of one super-packet it is given."""
        message = ifinfmsg()
        message["index"] = index
        wanted = (("IFLA_MTU", mtu), ("IFLA_GSO_MAX_SEGS", gso_max_segments))
        message["attrs"] = [(name, value) for name, value in wanted if value is not None]
        if is_up is not None:
            message["change"] = _IFF_UP
            message["flags"] = _IFF_UP if is_up else 0
        self._change(message, rtnl.RTM_NEWLINK)

    # -- addresses

    def addresses(self) -> list[LinkAddress]:
        """Return every address of every interface, tentative ones too."""
        found = []
        for message in self._dump(ifaddrmsg(), rtnl.RTM_GETADDR):
            # On a point-to-point link IFA_ADDRESS is the other end's.
            host = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            if host is not None:
                found.append(LinkAddress(message["index"], ip_interface(f"{host}/{message['prefixlen']}")))
        return found

    def add_address(self, index: int, interface: IPInterface, *, prefix_route: bool) -> None:
        """Give an interface an address at once usable (no duplicate address detection).

        prefix_route: also the route to the address's network that usually comes with it.
        """
        flags = _IFA_F_NODAD | (0 if prefix_route else _IFA_F_NOPREFIXROUTE)
        message = _address_message(index, interface)
        message["attrs"] += [("IFA_FLAGS", flags)]
        self._change(message, rtnl.RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE)

    def remove_address(self, index: int, interface: IPInterface) -> None:
        """Take an address away. Raises OSError (EADDRNOTAVAIL) when it is not there."""
        self._change(_address_message(index, interface), rtnl.RTM_DELADDR)

    # -- routes

    def routes(self, version: int) -> list[Route]:
        """Return the routes of every table but those of multicast and broadcast."""
        message = rtmsg()
        message["family"] = _family(version)
        found = []
        for each in self._dump(message, rtnl.RTM_GETROUTE):
            if each["flags"] & _RTM_F_CLONED or each["type"] in _NOT_HERE:
                continue
            host = each.get_attr("RTA_DST") or ("::" if version == 6 else "0.0.0.0")
            network = ip_network(f"{host}/{each['dst_len']}")
            table = each.get_attr("RTA_TABLE") or each["table"]
            hops = each.get_attr("RTA_MULTIPATH") or ()
            indices = [hop["oif"] for hop in hops] or [each.get_attr("RTA_OIF")]
            found += [Route(network, table, index, each["proto"]) for index in indices]
        return found

    def replace_route(
        self, network: IPNetwork, *, table: int, index: int, mtu: int | None, source: IPAddress | None
    ) -> None:
        """Add a route out of an interface, or change the one to the same network in that table."""
        message = _route_message(network, table, index)
        message["type"] = _RTN_UNICAST
        message["scope"] = _RT_SCOPE_LINK if network.version == 4 else 0
        message["proto"] = PROTOCOL
        if mtu is not None:
            message["attrs"] += [("RTA_METRICS", {"attrs": [("RTAX_MTU", mtu)]})]
        if source is not None:
            message["attrs"] += [("RTA_PREFSRC", str(source))]
        self._change(message, rtnl.RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE)

    def remove_route(self, network: IPNetwork, *, table: int, index: int) -> None:
        """Remove a route. Raises OSError (ESRCH) when it is not there."""
        message = _route_message(network, table, index)
        message["scope"] = _RT_SCOPE_NOWHERE if network.version == 4 else 0  # any
        self._change(message, rtnl.RTM_DELROUTE)

    def route_to(self, address: IPAddress) -> RouteTo:
        """Return how the kernel would send to an address now. Raises OSError (ENETUNREACH) when it would not."""
        message = rtmsg()
        message["family"] = _family(address.version)
        message["dst_len"] = address.max_prefixlen
        message["attrs"] = [("RTA_DST", str(address).partition("%")[0])]
        found = self._get(message, rtnl.RTM_GETROUTE)
        index = found.get_attr("RTA_OIF")
        if index is None:
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        metrics = found.get_attr("RTA_METRICS")
        mtu = metrics.get_attr("RTAX_MTU") if metrics else None
        cache = found.get_attr("RTA_CACHEINFO")
        if mtu is not None and cache and cache["rta_expires"]:
            mtu = None  # a cached ICMP message, which anyone can forge, and not the administrator's word
        source = found.get_attr("RTA_PREFSRC")
        return RouteTo(index, None if source is None else ip_address(source), mtu)

    # -- rules

    def rules(self, version: int) -> list[Rule]:
        """Return the rules that look a table up, in the order of their priority."""
        message = fibmsg()
        message["family"] = _family(version)
        found = []
        for each in self._dump(message, rtnl.RTM_GETRULE):
            if each["action"] != _FR_ACT_TO_TBL:
                continue
            host = each.get_attr("FRA_DST")
            suppressed = each.get_attr("FRA_SUPPRESS_PREFIXLEN")
            found.append(
                Rule(
                    version=version,
                    priority=each.get_attr("FRA_PRIORITY") or 0,
                    table=each.get_attr("FRA_TABLE") or each["table"],
                    destination=None if host is None else ip_network(f"{host}/{each['dst_len']}"),
                    suppress_prefixlength=None if suppressed in (None, _NO_SUPPRESSION) else suppressed,
                    protocol=each.get_attr("FRA_PROTOCOL") or 0,
                )
            )
        return found

    def add_rule(self, rule: Rule) -> None:
        """Add a rule. Raises OSError (EEXIST) when the same one is there."""
        self._change(_rule_message(rule), rtnl.RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL)

    def remove_rule(self, rule: Rule) -> None:
        """Remove a rule. Raises OSError (ENOENT) when it is not there."""
        self._change(_rule_message(rule), rtnl.RTM_DELRULE)

    # -- messages

    def _dump(self, message: Any, kind: int) -> list[Any]:
        """Return the parts of an answer. A dump that a change interrupted may lack some and is asked for again."""
        found: list[Any] = []
        for _ in range(_DUMP_ATTEMPTS):
            found, is_complete = self._exchange(message, kind, NLM_F_DUMP)
            if is_complete:
                break
        return found

    def _get(self, message: Any, kind: int) -> Any:
        found, _ = self._exchange(message, kind, 0)
        return found[0]

    def _change(self, message: Any, kind: int, flags: int = 0) -> None:
        self._exchange(message, kind, NLM_F_ACK | flags)

    def _exchange(self, message: Any, kind: int, flags: int) -> tuple[list[Any], bool]:
        """Send one request and return its whole answer, and whether nothing changed while it was put together."""
        self._sequence += 1
        header = message["header"]
        header["type"] = kind
        header["flags"] = flags | NLM_F_REQUEST
        header["sequence_number"] = self._sequence
        message.reset()
        message.encode()
        self._socket.send(bytes(message.data))
        is_dump = flags & NLM_F_DUMP == NLM_F_DUMP
        found: list[Any] = []
        is_complete = True
        while True:
            for each in self._marshal.parse(self._socket.recv(_RECEIVE_SIZE)):
                answer = each["header"]
                if answer["sequence_number"] != self._sequence:
                    continue  # of an exchange that was interrupted
                is_complete = is_complete and not answer["flags"] & _NLM_F_DUMP_INTR
                if answer["type"] == _NLMSG_ERROR:
                    _raise_refusal(each)
                    return found, is_complete
                if answer["type"] == _NLMSG_DONE:
                    return found, is_complete
                found.append(each)
                if not is_dump:
                    return found, is_complete


def refusal(what: str, error: OSError) -> SystemSetupError:
    """Return the error a person gets for one of the kernel: what was tried, why not, what to type."""
    remedy = None
    if error.errno in (errno.EPERM, errno.EACCES):
        remedy = "Run as root or with CAP_NET_ADMIN"
    elif error.errno in (errno.EAFNOSUPPORT, errno.EOPNOTSUPP):
        remedy = "This kernel lacks the IP version or policy routing (CONFIG_IP_MULTIPLE_TABLES)"
    return SystemSetupError(f"cannot {what} ({error.strerror})", remedy=remedy)


_RTM_F_CLONED: Final = 0x200
_RT_SCOPE_NOWHERE: Final = 255
_NOT_HERE: Final = frozenset((2, 3, 4, 5))  # local, broadcast, anycast, multicast: derived from addresses


def _raise_refusal(message: Any) -> None:
    code = abs(message["error"])
    if code:
        raise OSError(code, os.strerror(code))


def _family(version: int) -> int:
    return socket.AF_INET6 if version == 6 else socket.AF_INET


def _link(message: Any) -> Link:
    flags = message["flags"]
    return Link(
        message["index"],
        message.get_attr("IFLA_IFNAME"),
        message.get_attr("IFLA_MTU"),
        bool(flags & _IFF_UP),
        bool(flags & _IFF_LOOPBACK),
    )


def _address_message(index: int, interface: IPInterface) -> Any:
    message = ifaddrmsg()
    message["family"] = _family(interface.version)
    message["index"] = index
    message["prefixlen"] = interface.network.prefixlen
    message["attrs"] = [("IFA_LOCAL", str(interface.ip)), ("IFA_ADDRESS", str(interface.ip))]
    return message


def _route_message(network: IPNetwork, table: int, index: int) -> Any:
    message = rtmsg()
    message["family"] = _family(network.version)
    message["dst_len"] = network.prefixlen
    message["table"] = table if table < 256 else 0
    message["attrs"] = [("RTA_TABLE", table), ("RTA_OIF", index)]
    if network.prefixlen:
        message["attrs"] += [("RTA_DST", str(network.network_address))]
    return message


def _rule_message(rule: Rule) -> Any:
    message = fibmsg()
    message["family"] = _family(rule.version)
    message["action"] = _FR_ACT_TO_TBL
    message["table"] = rule.table if rule.table < 256 else 0
    message["attrs"] = [
        ("FRA_TABLE", rule.table),
        ("FRA_PRIORITY", rule.priority),
        ("FRA_PROTOCOL", rule.protocol),
    ]
    if rule.destination is not None:
        message["dst_len"] = rule.destination.prefixlen
        message["attrs"] += [("FRA_DST", str(rule.destination.network_address))]
    if rule.suppress_prefixlength is not None:
        message["attrs"] += [("FRA_SUPPRESS_PREFIXLEN", rule.suppress_prefixlength)]
    return message
