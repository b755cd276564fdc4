"""The client's tunnel once the server accepted the request: addresses, routes, sizes, and what may pass."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Final

from qtunnel.config import ClientConfig, IPAddress, IPInterface, IPNetwork
from qtunnel.ip.forward import IcmpErrors
from qtunnel.ip.policy import Policy
from qtunnel.masque.address_capsules import AddressRange
from qtunnel.masque.events import (
    AddressesAssigned,
    AddressesRequested,
    PacketsInCapsules,
    RoutesAdvertised,
    SessionEnded,
)
from qtunnel.masque.session import Session
from qtunnel.quic.h3 import HttpConnection
from qtunnel.tunnel.events import AddressesChanged, InnerMtuChanged, Ipv6Refused, RoutesChanged, TunnelEvent
from qtunnel.tunnel.ip_stream import IpStream
from qtunnel.tunnel.ipv6_check import ALL_NODES, Ipv6Check
from qtunnel.tunnel.ranges import as_prefixes, as_ranges
from qtunnel.tunnel.stats import TrafficStats

__all__ = ["ClientSession"]

logger = logging.getLogger(__name__)

SETTLE_TIME: Final = 0.5
"""Seconds to wait for the second address family once the first is there; some servers send them apart."""
MAX_ROUTES: Final = 1024
"""Prefixes taken from the server's routes; a range can fall into hundreds of prefixes."""


class ClientSession:
    """Asks for addresses, takes what the server assigns, and holds both ends to it.

    events: what happened, oldest first; the owner empties it. is_up: set by come_up; before it no event is made.
    """

    def __init__(
        self,
        config: ClientConfig,
        connection: HttpConnection,
        stream_id: int,
        *,
        own_addresses: Collection[IPAddress],
        check_identifier: int,
        stats: TrafficStats,
    ) -> None:
        self.addresses: tuple[IPInterface, ...] = ()
        self.routes: tuple[IPNetwork, ...] = ()
        self.ipv6_refusal: str | None = None
        self.is_up = False
        self.events: deque[TunnelEvent] = deque()
        self._config = config
        self._connection = connection
        self._own_addresses = own_addresses
        self._check_identifier = check_identifier
        self._icmp = IcmpErrors(address4=None, address6=None)
        self._refused_families: set[int] = set()
        self._settle_at: float | None = None
        self.stream = IpStream(
            connection,
            stream_id,
            Session(is_client=True, quirks=config.peer_quirks),
            icmp=self._icmp,
            egress=Policy(),
            ingress=Policy(),
            stats=stats,
        )
        self._update_policies()
        self._ask()

    def receive_data(self, data: bytes, end: bool, now: float) -> list[bytes]:
        """Take bytes of the request stream; return inner packets that came in DATAGRAM capsules.

        Raises: PeerProtocolError for a malformed capsule.
        """
        packets: list[bytes] = []
        session = self.stream.session
        session.receive_stream_data(data, end)
        while (event := session.next_event()) is not None:
            match event:
                case AddressesAssigned():
                    self._addresses_assigned(event, now)
                case RoutesAdvertised():
                    self._routes_advertised(event.ranges, now)
                case PacketsInCapsules():
                    packets += event.packets
                case AddressesRequested():
                    session.answer_requests(event.requests, [])  # a client has none to give
                case SessionEnded():
                    self.stream.ended = True
        self.stream.send_capsules()
        return packets

    def is_settled(self, now: float) -> bool:
        """Say whether the tunnel can come up: an address of each family we want, or of one after a while."""
        if not self.addresses or not self._connection.handshake_confirmed:
            return False
        missing = self._wanted() - self._refused_families - {address.version for address in self.addresses}
        return not missing or (self._settle_at is not None and now >= self._settle_at)

    @property
    def refusal(self) -> str | None:
        """Why the tunnel cannot come up, as the server refuses every family we want; None while it may."""
        confirmed = self._connection.handshake_confirmed
        if self.addresses or not confirmed or not self._wanted() <= self._refused_families:
            return None
        return "the server assigned no address"

    def come_up(self, now: float) -> None:
        """Begin to carry packets. No address left after this: ipv6_refusal says why."""
        self.stream.update_mtu(now)
        self._settle_at = None
        self.is_up = True
        self._start_ipv6_check(now)

    def advance(self, now: float) -> None:
        """Follow the packet size, and run the check of RFC 9484 §7.2. Due at get_timer()."""
        if not self.is_up:
            return
        if (change := self.stream.update_mtu(now)) is not None:
            self.events.append(InnerMtuChanged(time=now, old=change[0], new=change[1]))
        self._start_ipv6_check(now)
        if self.stream.run_ipv6_check(now):
            self._refuse_ipv6(f"the server {self.stream.unanswered_ipv6}", now)

    def get_timer(self) -> float | None:
        """Return when advance, or before the tunnel is up is_settled, is due."""
        if self.is_up:
            return self.stream.get_timer()
        # Nothing but a datagram from the server can change the other two conditions of is_settled.
        return self._settle_at if self.addresses and self._connection.handshake_confirmed else None

    def set_own_addresses(self, addresses: Collection[IPAddress]) -> None:
        """Take over this host's present addresses."""
        self._own_addresses = addresses
        self._update_policies()

    # what the server says

    def _wanted(self) -> set[int]:
        return {version for version, wish in ((4, self._config.want_ipv4), (6, self._config.want_ipv6)) if wish}

    def _ask(self) -> None:
        """Ask for addresses, as an end that needs some must (RFC 9484 §4.7.1), and offer the networks we carry."""
        wishes: list[IPInterface] = []
        if self._config.want_ipv4:
            wishes.append(IPv4Interface("0.0.0.0/32"))
        if self._config.want_ipv6:
            wishes.append(IPv6Interface("::/128"))
        self.stream.session.request_addresses(wishes)
        if self._config.advertise:
            self.stream.session.advertise_routes(as_ranges(self._config.advertise))
        self.stream.send_capsules()

    def _addresses_assigned(self, event: AddressesAssigned, now: float) -> None:
        addresses: list[IPInterface] = []
        for version in sorted(self._wanted()):  # a server may assign what nobody asked for
            # The first of each family is for the TUN; a prefix holds more, which RFC 9484 §4.7.1 allows.
            addresses += [address for address in event.addresses if address.version == version][:1]
        self._refused_families = {4, 6} - {address.version for address in addresses} if event.refused else set()
        if self.ipv6_refusal is not None:
            addresses = [address for address in addresses if address.version == 4]
        self._set_addresses(tuple(addresses), now)
        if not self.is_up and self.addresses and self._settle_at is None:
            self._settle_at = now + SETTLE_TIME
        self._start_ipv6_check(now)

    def _routes_advertised(self, ranges: Iterable[AddressRange], now: float) -> None:
        routes, more = as_prefixes(ranges, MAX_ROUTES)
        if more:
            logger.warning("the server advertises more than %d routes; the rest is ignored", MAX_ROUTES)
        if routes != self.routes:
            self.routes = routes
            if self.is_up:
                self.events.append(RoutesChanged(time=now, routes=routes))

    def _set_addresses(self, addresses: tuple[IPInterface, ...], now: float) -> None:
        if addresses == self.addresses:
            return
        self.addresses = addresses
        self._update_policies()
        if self.is_up:
            self.events.append(AddressesChanged(time=now, addresses=addresses))

    # IPv6

    def _start_ipv6_check(self, now: float) -> None:
        if not self.is_up or self.stream.ipv6_check is not None or not self._connection.is_size_settled:
            return
        source = self._address6()
        if source is not None:
            # The server's address inside is not known, hence all nodes on the link (RFC 9484 §7.2).
            self.stream.ipv6_check = Ipv6Check(
                source=source, destinations=(ALL_NODES,), identifier=self._check_identifier, now=now
            )

    def _refuse_ipv6(self, reason: str, now: float) -> None:
        """Go on without IPv6; RFC 9484 §7.2 would end the tunnel (docs/design/0003-connect-ip-decisions.md)."""
        if self.ipv6_refusal is not None:
            return
        self.ipv6_refusal = reason
        logger.warning("no IPv6 through the tunnel: %s", reason)
        self.events.append(Ipv6Refused(time=now, reason=reason))
        self._set_addresses(tuple(address for address in self.addresses if address.version == 4), now)

    # what may pass

    def _update_policies(self) -> None:
        sources: list[IPNetwork] = [address.network for address in self.addresses]
        sources += self._config.advertise
        ipv6 = any(source.version == 6 for source in sources) and self.ipv6_refusal is None
        self.stream.set_policies(
            egress=Policy(sources=sources, ipv6=ipv6, link_local=True),
            ingress=Policy(own_addresses=self._own_addresses, ipv6=ipv6),
        )
        self._icmp.address4 = self._address4()
        self._icmp.address6 = self._address6()

    def _address4(self) -> IPv4Address | None:
        return next((each.ip for each in self.addresses if isinstance(each, IPv4Interface)), None)

    def _address6(self) -> IPv6Address | None:
        return next((each.ip for each in self.addresses if isinstance(each, IPv6Interface)), None)
