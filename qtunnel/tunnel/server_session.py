"""One user's live tunnel on the server."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from ipaddress import IPv4Interface, IPv6Interface, ip_network
from typing import Any, Final

from qtunnel.burst import address_text
from qtunnel.config import IPAddress, IPInterface, IPNetwork, ServerConfig, User
from qtunnel.drops import DropReason
from qtunnel.ip.forward import IcmpErrors
from qtunnel.ip.policy import Policy
from qtunnel.masque.address_capsules import AddressRange, AssignedAddress
from qtunnel.masque.datagram import CONTEXT_PREFIX
from qtunnel.masque.events import (
    AddressesAssigned,
    AddressesRequested,
    PacketsInCapsules,
    RoutesAdvertised,
    SessionEnded,
)
from qtunnel.masque.request import build_response
from qtunnel.masque.session import Session
from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.tunnel.admission import Admitted
from qtunnel.tunnel.events import InnerMtuChanged, Ipv6Refused, PrefixesChanged, SessionOpened, TunnelEvent
from qtunnel.tunnel.ip_stream import IpStream
from qtunnel.tunnel.ipv6_check import ALL_NODES, Ipv6Check
from qtunnel.tunnel.limit_history import LimitHistory
from qtunnel.tunnel.ranges import as_ip_ranges, as_prefixes, as_ranges, contains

__all__ = ["ServerSession"]

logger = logging.getLogger(__name__)

MAX_PREFIXES: Final = 256
"""Networks one client may announce; each becomes a kernel route."""


class ServerSession:
    """Answers the request, assigns addresses, advertises routes, and holds the client to them.

    prefixes: the networks behind the client that are routed to it: announced by it and permitted to its user.
    events: what happened, oldest first; the owner empties it.
    """

    def __init__(
        self,
        config: ServerConfig,
        connection: HttpConnection,
        stream_id: int,
        admitted: Admitted,
        *,
        own_addresses: Collection[IPAddress],
        now: float,
    ) -> None:
        self.config = config
        self.connection = connection
        self._limits = LimitHistory()
        self.user: User = admitted.user
        self.since = now
        self.prefixes: tuple[IPNetwork, ...] = ()
        self.ipv6_refusal: str | None = None
        self.events: deque[TunnelEvent] = deque()
        self._admitted = admitted
        self._own_addresses = own_addresses
        self._confirmed = False
        self.addresses: tuple[IPAddress, ...] = admitted.lease.addresses()
        self._routes = self._routes_for_client()
        self._icmp = IcmpErrors(
            address4=None if config.pool4 is None else config.pool4.ip,
            address6=None if config.pool6 is None else config.pool6.ip,
            rate=config.icmp_rate,
            burst=config.icmp_burst,
        )
        connection.send_headers(stream_id, build_response())
        connection.register_packet_stream(stream_id, CONTEXT_PREFIX)
        self.stream = IpStream(
            connection,
            stream_id,
            Session(is_client=False, quirks=config.peer_quirks),
            icmp=self._icmp,
            egress=Policy(),
            ingress=Policy(),
        )
        self._update_policies()
        self._assign()
        self.events.append(
            SessionOpened(
                time=now, user=self.user.name, remote=address_text(connection.remote), addresses=self.addresses
            )
        )

    def receive_data(self, data: bytes, end: bool, now: float) -> list[bytes]:
        """Take bytes of the request stream; return inner packets that came in DATAGRAM capsules.

        Raises: PeerProtocolError for a malformed capsule.
        """
        packets: list[bytes] = []
        session = self.stream.session
        session.receive_stream_data(data, end)
        while (event := session.next_event()) is not None:
            match event:
                case AddressesRequested():
                    session.answer_requests(event.requests, self._assigned(), ipv6=self.ipv6_refusal is None)
                case RoutesAdvertised():
                    self._routes_advertised(event.ranges, now)
                case PacketsInCapsules():
                    packets += event.packets
                case SessionEnded():
                    self.stream.ended = True
                case AddressesAssigned():
                    pass  # a client that assigns us an address: legal (RFC 9484 §4.7.1), and we need none
        self.stream.send_capsules()
        return packets

    def advance(self, now: float) -> None:
        """Follow the packet size, and run the check of RFC 9484 §7.2. Due at stream.get_timer()."""
        change = self.stream.update_mtu(now)
        if change is not None:
            self.events.append(InnerMtuChanged(time=now, old=change[0], new=change[1], user=self.user.name))
        if not self.connection.handshake_confirmed:
            return
        if not self._confirmed and self.connection.is_size_settled:
            self._confirmed = True
            self._start_check(now)
        if self.stream.run_ipv6_check(now):
            self._refuse_ipv6(f"the client {self.stream.unanswered_ipv6}", now)

    def set_user(self, user: User, now: float) -> None:
        """Take over a changed user: its permitted prefixes."""
        self.user = user
        kept = tuple(prefix for prefix in self.prefixes if self._is_permitted(prefix))
        if kept != self.prefixes:
            self.prefixes = kept
            self.events.append(PrefixesChanged(time=now, user=user.name, prefixes=kept))
        self._update_policies()

    def set_own_addresses(self, addresses: Collection[IPAddress]) -> None:
        """Take over this host's present addresses."""
        self._own_addresses = addresses
        self._update_policies()

    def refuse(self, packets: Packets, reason: DropReason, icmp: IcmpErrors, now: float) -> None:
        """Drop packets of this client that may not go where they want, and say so by ICMP: to a flow once."""
        self.stream.stats.drops[reason] += len(packets)
        about = packets[:1] if isinstance(packets, PacketRun) and packets.is_flow else packets
        replies = [reply for packet in about if (reply := icmp.unreachable(packet, reason, now)) is not None]
        if replies:
            self.stream.send_unchecked(replies, now)

    def note_limit(self, now: float) -> SendingLimit:
        """Note what keeps packets for this client from leaving, and return it."""
        limit = self.connection.sending_limit(now)
        self._limits.note(limit, now)
        return limit

    def status(self, now: float) -> dict[str, Any]:
        """Return what `qtunnel status` shows of this session."""
        self.stream.collect_drops()
        quic = self.connection.stats()
        path = self.connection.path_mtu_status(now)
        return {
            "user": self.user.name,
            "remote": address_text(self.connection.remote),
            "addresses": [str(address) for address in self.addresses],
            "prefixes": [str(prefix) for prefix in self.prefixes],
            "since_s": round(now - self.since, 1),
            "inner_mtu": self.stream.mtu,
            "ipv6": self.ipv6_refusal or ("ok" if any(a.version == 6 for a in self.addresses) else "no pool"),
            "path_mtu": path["mtu"],
            "path": path,
            "rtt_ms": round(quic.smoothed_rtt * 1000, 2),
            "key_updates": quic.key_updates,
            "limit": str(self._limits.current(now)),
            "gso_given_up": self.connection.has_given_up_gso,
            **self.stream.stats.as_dict(),
        }

    # addresses and routes

    def _assigned(self) -> list[AssignedAddress]:
        return [AssignedAddress(0, _host_interface(address)) for address in self.addresses]

    def _assign(self) -> None:
        """Send the complete lists, unasked: a client that did ask gets its request ids in a second answer."""
        session = self.stream.session
        session.assign_addresses(self._assigned())
        session.advertise_routes(self._routes)
        self.stream.send_capsules()

    def _routes_for_client(self) -> list[AddressRange]:
        """Return what the client may reach: the pools and what is advertised, within the scope it asked for."""
        networks: list[IPNetwork] = [
            *(pool.network for pool in (self.config.pool4, self.config.pool6) if pool is not None),
            *self.config.advertise,
        ]
        scope = self._admitted.scope
        if scope is not None:
            networks = [
                smaller
                for network in networks
                for limit in scope
                if (smaller := _intersection(network, limit)) is not None
            ]
        families = {address.version for address in self.addresses}
        return as_ranges((n for n in networks if n.version in families), self._admitted.protocol)

    def _routes_advertised(self, ranges: list[AddressRange], now: float) -> None:
        offered, _ = as_prefixes(ranges, MAX_PREFIXES)
        accepted = tuple(prefix for prefix in offered if self._is_permitted(prefix))
        refused = tuple(prefix for prefix in offered if prefix not in accepted)
        self.prefixes = accepted
        self._update_policies()
        self.events.append(PrefixesChanged(time=now, user=self.user.name, prefixes=accepted, refused=refused))
        if refused:
            logger.warning(
                "%s announced networks its user has no permission for: %s",
                self.user.name,
                ", ".join(map(str, refused)),
            )

    def _is_permitted(self, prefix: IPNetwork) -> bool:
        return any(contains(permitted, prefix) for permitted in self.user.prefixes)

    def _update_policies(self) -> None:
        """Hold the client to BCP 38: sources are the assigned addresses and the routed prefixes."""
        sources: list[IPNetwork] = [ip_network(address) for address in self.addresses]
        sources += self.prefixes
        ipv6 = any(source.version == 6 for source in sources)
        self.stream.set_policies(
            egress=Policy(ipv6=ipv6, link_local=True),
            ingress=Policy(
                sources=sources,
                destinations=as_ip_ranges(self._routes),
                own_addresses=self._own_addresses,
                ipv6=ipv6,
            ),
        )

    # IPv6

    def _start_check(self, now: float) -> None:
        own = self.config.pool6
        destination = next((address for address in self.addresses if address.version == 6), None)
        if own is None or destination is None or destination.version != 6:
            return
        self.stream.ipv6_check = Ipv6Check(
            source=own.ip,
            destinations=(ALL_NODES, destination),
            identifier=self.stream.stream_id & 0xFFFF ^ 0x5151,
            now=now,
        )

    def _refuse_ipv6(self, reason: str, now: float) -> None:
        """Withdraw the IPv6 address and routes by new complete lists; IPv4 goes on."""
        if self.ipv6_refusal is not None or not any(address.version == 6 for address in self.addresses):
            return
        self.ipv6_refusal = reason
        self.addresses = tuple(address for address in self.addresses if address.version == 4)
        self._routes = self._routes_for_client()
        self._update_policies()
        self._assign()
        logger.warning("%s: no IPv6 through the tunnel: %s", self.user.name, reason)
        self.events.append(Ipv6Refused(time=now, reason=reason, user=self.user.name))


def _host_interface(address: IPAddress) -> IPInterface:
    if address.version == 4:
        return IPv4Interface((address, 32))
    return IPv6Interface((address, 128))


def _intersection(a: IPNetwork, b: IPNetwork) -> IPNetwork | None:
    """Return the smaller of two networks if one contains the other; networks never overlap in part."""
    if contains(a, b):
        return b
    return a if contains(b, a) else None
