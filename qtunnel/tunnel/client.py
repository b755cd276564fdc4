"""The client's side of one connection: from the first packet to the tunnel being up, and until it ends.

One ClientTunnel is one attempt. A new attempt is a new object (qtunnel.aio.client decides when, with
qtunnel.tunnel.reconnect); what must outlive it, such as the TUN, is not here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Any, Final

from qtunnel.burst import Address, Burst, Received, Transmit, address_text
from qtunnel.config import ClientConfig, IPAddress, IPInterface, IPNetwork
from qtunnel.drops import DropReason
from qtunnel.errors import PeerProtocolError
from qtunnel.ip.forward import IcmpErrors
from qtunnel.ip.policy import Policy
from qtunnel.masque.address_capsules import AddressRange
from qtunnel.masque.datagram import CONTEXT_PREFIX
from qtunnel.masque.events import (
    AddressesAssigned,
    AddressesRequested,
    PacketsInCapsules,
    RoutesAdvertised,
    SessionEnded,
)
from qtunnel.masque.request import ResponseRejectedError, build_request, check_response, is_interim_response
from qtunnel.masque.session import Session
from qtunnel.masque.uri_template import default_template, parse_template
from qtunnel.quic.events import (
    ConnectionClosed,
    DatagramsReceived,
    DataReceived,
    GoawayReceived,
    HandshakeCompleted,
    HeadersReceived,
    HttpEvent,
    PacketsReceived,
    SettingsReceived,
    StreamReset,
)
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.settings import ConnectionSettings
from qtunnel.tunnel.endings import H3_NO_ERROR, H3_REQUEST_CANCELLED, describe_close
from qtunnel.tunnel.events import (
    AddressesChanged,
    Closed,
    CloseReason,
    Connected,
    InnerMtuChanged,
    Ipv6Refused,
    RoutesChanged,
    ServerVerified,
    TunnelEvent,
)
from qtunnel.tunnel.ip_stream import MIN_IPV6_MTU, IpStream, too_small_for_ipv6
from qtunnel.tunnel.ipv6_check import Ipv6Check
from qtunnel.tunnel.ranges import as_prefixes, as_ranges
from qtunnel.tunnel.stats import TrafficStats

ALL_NODES: Final = IPv6Address("ff02::1")

__all__ = ["ClientState", "ClientTunnel"]

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT: Final = 10.0
"""Seconds from the end of the handshake until the tunnel must be up."""
SETTLE_TIME: Final = 0.5
"""Seconds to wait for the second address family once the first is there; some servers send them apart."""
MAX_ROUTES: Final = 1024
"""Prefixes taken from the server's routes; a range can fall into hundreds of prefixes."""


class ClientState(Enum):
    """How far this connection has come."""

    HANDSHAKE = "handshake"
    WAITING_FOR_SETTINGS = "waiting for the server's settings"
    REQUESTED = "requested"
    OPENING = "waiting for addresses"
    UP = "up"
    CLOSED = "closed"


_TRANSITIONS: Final = {
    ClientState.HANDSHAKE: {ClientState.WAITING_FOR_SETTINGS, ClientState.CLOSED},
    ClientState.WAITING_FOR_SETTINGS: {ClientState.REQUESTED, ClientState.CLOSED},
    ClientState.REQUESTED: {ClientState.OPENING, ClientState.CLOSED},
    ClientState.OPENING: {ClientState.UP, ClientState.CLOSED},
    ClientState.UP: {ClientState.CLOSED},
    ClientState.CLOSED: set(),
}


class ClientTunnel:
    """The six verbs, towards TUN and UDP, for one connection to one server address.

    own_addresses: this host's addresses, refused as a source of packets from the server. check_identifier: 16
    random bits for our echoes. hold_request: verify the server but ask for nothing, and so send no token, before
    allow_request; for racing several addresses of one server. Call get_timer and datagrams_to_send after every
    call that takes `now`.
    """

    def __init__(
        self,
        config: ClientConfig,
        settings: ConnectionSettings,
        remote: Address,
        now: float,
        *,
        own_addresses: Collection[IPAddress] = (),
        check_identifier: int = 0x7171,
        hold_request: bool = False,
    ) -> None:
        self.config = config
        self.remote = remote
        self.state = ClientState.HANDSHAKE
        self.addresses: tuple[IPInterface, ...] = ()
        self.routes: tuple[IPNetwork, ...] = ()
        self.ipv6_refusal: str | None = None
        self.up_since: float | None = None
        self.stats = TrafficStats()  # replaced by the stream's once there is one
        self._connection = HttpConnection.client(settings, remote, now)
        self._own_addresses = own_addresses
        self._hold_request = hold_request
        self._settings: SettingsReceived | None = None
        self._check_identifier = check_identifier
        self._icmp = IcmpErrors(address4=None, address6=None)
        self._stream: IpStream | None = None
        self._stream_id: int | None = None
        self._refused_families: set[int] = set()
        self._give_up_at: float | None = None
        self._settle_at: float | None = None
        self._events: deque[TunnelEvent] = deque()
        self._to_tun: list[bytes] = []

    # what comes in

    def receive_from_tun(self, burst: Burst) -> None:
        """Take inner packets for the server. Before the tunnel is up they are dropped and counted."""
        stream = self._stream
        if stream is None or self.state is not ClientState.UP:
            self.stats.drops[DropReason.NO_SESSION] += len(burst.packets)
            return
        self._to_tun += stream.send(burst.packets, burst.now)

    def receive_from_udp(self, received: list[Received], now: float) -> None:
        """Take UDP datagrams read in one wake-up."""
        self._connection.receive_from_udp(received, now)
        self._advance(now)

    def handle_timer(self, now: float) -> None:
        """Do what is due at now."""
        self._connection.handle_timer(now)
        if self._give_up_at is not None and now >= self._give_up_at:
            self._give_up_at = None
            if self.state is ClientState.OPENING and self._stream is not None:
                self._fail(CloseReason.NO_ADDRESS, "The server accepted the request but assigned no address", now)
            elif self.state is not ClientState.UP:
                self._fail(CloseReason.NO_ANSWER, "The server did not answer the request in time", now)
        self._advance(now)

    def allow_request(self, now: float) -> None:
        """Go on after hold_request: this address of the server won."""
        self._hold_request = False
        self._send_request(now)

    def set_own_addresses(self, addresses: Collection[IPAddress]) -> None:
        """Tell the tunnel this host's present addresses."""
        self._own_addresses = addresses
        self._update_policies()

    def close(self, now: float) -> None:
        """End the tunnel: the request stream and then the connection. Send what datagrams_to_send returns."""
        if self.state is not ClientState.CLOSED:
            self._fail(CloseReason.LOCAL, "Closed by this side", now, error_code=H3_NO_ERROR)

    # what comes out

    def get_timer(self) -> float | None:
        """Return when handle_timer is due, or None."""
        timers = [self._connection.get_timer()]
        if self.state is not ClientState.CLOSED:
            timers += [self._give_up_at, self._settle_at]
            if self._stream is not None:
                timers.append(self._stream.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        """Return what to send on UDP."""
        return self._connection.datagrams_to_send(now)

    def packets_to_write(self) -> list[bytes]:
        """Return inner packets for the TUN, ICMP errors among them."""
        packets, self._to_tun = self._to_tun, []
        return packets

    def next_event(self) -> TunnelEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def packet_room(self) -> int:
        """Return how many packets may be read from the TUN now; 0 leaves them where their senders notice."""
        return self._connection.packet_queue_room()

    @property
    def inner_mtu(self) -> int:
        """Return the largest inner packet, in bytes; 0 before the tunnel is up."""
        return 0 if self._stream is None else self._stream.mtu

    def status(self, now: float) -> dict[str, Any]:
        """Return what `qtunnel status` shows of this connection."""
        quic = self._connection.stats()
        return {
            "state": self.state.value,
            "remote": address_text(self.remote),
            "since_s": None if self.up_since is None else round(now - self.up_since, 1),
            "addresses": [str(address) for address in self.addresses],
            "peer_routes": [str(route) for route in self.routes],
            "inner_mtu": self.inner_mtu,
            "ipv6": self.ipv6_refusal or "ok",
            "rtt_ms": round(quic.smoothed_rtt * 1000, 2),
            **self.stats.as_dict(),
        }

    # events of the connection

    def _advance(self, now: float) -> None:
        while (event := self._connection.next_event()) is not None:
            try:
                self._handle_event(event, now)
            except PeerProtocolError as error:
                self._fail(CloseReason.PROTOCOL, f"The server broke the protocol: {error}", now, error.error_code)
        if self.state is ClientState.OPENING:
            self._try_up(now)
        if self.state is ClientState.UP:
            self._follow_mtu(now)
            if self._stream is not None and self._stream.run_ipv6_check(now):
                self._refuse_ipv6("the server did not answer an IPv6 echo of 1280 bytes", now)

    def _handle_event(self, event: HttpEvent, now: float) -> None:
        if self.state is ClientState.CLOSED:
            return
        match event:
            case PacketsReceived():
                self._receive_packets(event.packets, now)
            case DatagramsReceived():
                self._receive_datagrams(event.payloads, now)
            case HandshakeCompleted():
                self._enter(ClientState.WAITING_FOR_SETTINGS)
                self._give_up_at = now + REQUEST_TIMEOUT
                self._events.append(ServerVerified(time=now, remote=address_text(self.remote)))
            case SettingsReceived():
                self._settings = event
                self._send_request(now)
            case HeadersReceived():
                self._receive_response(event, now)
            case DataReceived():
                self._receive_data(event, now)
            case StreamReset():
                self._fail(
                    CloseReason.PEER, f"The server reset the tunnel's stream (code {event.error_code:#x})", now
                )
            case GoawayReceived():
                self._fail(CloseReason.SHUTDOWN, "The server is shutting down", now, error_code=H3_NO_ERROR)
            case ConnectionClosed():
                self._connection_closed(event, now)
            case _:
                pass

    def _send_request(self, now: float) -> None:
        settings = self._settings
        if self.state is not ClientState.WAITING_FOR_SETTINGS or self._hold_request or settings is None:
            return
        if not settings.extended_connect:
            self._fail(
                CloseReason.UNSUPPORTED,
                "The server does not offer extended CONNECT (RFC 9220), so it is no CONNECT-IP proxy",
                now,
            )
            return
        if not settings.datagrams:
            self._fail(CloseReason.UNSUPPORTED, "The server does not offer HTTP Datagrams (RFC 9297)", now)
            return
        config = self.config
        template = (
            default_template(config.server, config.port)
            if config.uri_template is None
            else parse_template(config.uri_template)
        )
        headers = build_request(
            template=template, target=config.target, ipproto=config.ipproto, token=config.token
        )
        self._stream_id = self._connection.send_request(headers)
        self._connection.register_packet_stream(self._stream_id, CONTEXT_PREFIX)
        self._enter(ClientState.REQUESTED)

    def _receive_response(self, event: HeadersReceived, now: float) -> None:
        if event.stream_id != self._stream_id or self.state is not ClientState.REQUESTED:
            return
        if is_interim_response(event.headers):
            return
        try:
            check_response(event.headers)
        except ResponseRejectedError as error:
            if error.status in (401, 403):
                self._fail(
                    CloseReason.AUTHENTICATION,
                    f"The server refused the token (status {error.status}). Ask for a new join link",
                    now,
                    error_code=H3_NO_ERROR,
                )
            else:
                retry = error.status in (429, 503)
                self._fail(
                    CloseReason.PEER if retry else CloseReason.REFUSED,
                    f"The server refused the tunnel: {error}",
                    now,
                    error_code=H3_NO_ERROR,
                )
            return
        if event.end:
            raise PeerProtocolError("the tunnel's stream ended with its response", error_code=0x10E)
        session = Session(is_client=True, quirks=self.config.peer_quirks)
        self._stream = IpStream(
            self._connection,
            event.stream_id,
            session,
            icmp=self._icmp,
            egress=Policy(),
            ingress=Policy(),
        )
        self._stream.stats.drops.update(self.stats.drops)
        self.stats = self._stream.stats
        self._enter(ClientState.OPENING)
        # RFC 9484 §4.7.1: an end that needs an address asks for it.
        wishes: list[IPInterface] = []
        if self.config.want_ipv4:
            wishes.append(IPv4Interface("0.0.0.0/32"))
        if self.config.want_ipv6:
            wishes.append(IPv6Interface("::/128"))
        session.request_addresses(wishes)
        if self.config.advertise:
            session.advertise_routes(as_ranges(self.config.advertise))
        self._send_capsules()

    def _receive_data(self, event: DataReceived, now: float) -> None:
        stream = self._stream
        if stream is None or event.stream_id != stream.stream_id:
            return
        stream.session.receive_stream_data(event.data, event.end)
        while (session_event := stream.session.next_event()) is not None:
            match session_event:
                case AddressesAssigned():
                    self._addresses_assigned(session_event, now)
                case RoutesAdvertised():
                    self._routes_advertised(session_event.ranges, now)
                case PacketsInCapsules():
                    self._receive_packets(session_event.packets, now)
                case AddressesRequested():
                    pass  # answered with refusals by _send_capsules: a client has no addresses to give
                case SessionEnded():
                    self._fail(CloseReason.PEER, "The server ended the tunnel", now, error_code=H3_NO_ERROR)
                    return
        self._send_capsules()

    def _receive_packets(self, packets: list[bytes], now: float) -> None:
        stream = self._stream
        if stream is None:
            self.stats.drops[DropReason.NO_SESSION] += len(packets)
            return
        self._to_tun += stream.receive(packets, now)

    def _receive_datagrams(self, payloads: list[bytes], now: float) -> None:
        stream = self._stream
        if stream is None:
            self.stats.drops[DropReason.NO_SESSION] += len(payloads)
            return
        self._to_tun += stream.receive_datagrams(payloads, now)

    def _connection_closed(self, event: ConnectionClosed, now: float) -> None:
        reason, text = describe_close(event, was_up=self.state is ClientState.UP, remote=self.remote)
        self._closed(reason, text, now)

    # addresses, routes, size

    def _addresses_assigned(self, event: AddressesAssigned, now: float) -> None:
        addresses: list[IPInterface] = []
        for version in (4, 6):
            # The first of each family is for the TUN; a prefix holds more, which RFC 9484 §4.7.1 allows.
            addresses += [address for address in event.addresses if address.version == version][:1]
        self._refused_families = {4, 6} - {address.version for address in addresses}
        if not event.refused:
            self._refused_families = set()
        if self.ipv6_refusal is not None:
            addresses = [address for address in addresses if address.version == 4]
        if tuple(addresses) == self.addresses:
            return
        self.addresses = tuple(addresses)
        self._update_policies()
        if self.state is ClientState.UP:
            self._start_ipv6_check(now)
            self._events.append(AddressesChanged(time=now, addresses=self.addresses))
        elif self._settle_at is None:
            self._settle_at = now + SETTLE_TIME

    def _routes_advertised(self, ranges: Iterable[AddressRange], now: float) -> None:
        routes, more = as_prefixes(ranges, MAX_ROUTES)
        if more:
            logger.warning("the server advertises more than %d routes; the rest is ignored", MAX_ROUTES)
        if routes == self.routes:
            return
        self.routes = routes
        if self.state is ClientState.UP:
            self._events.append(RoutesChanged(time=now, routes=routes))

    def _try_up(self, now: float) -> None:
        wanted = {
            version
            for version, wish in ((4, self.config.want_ipv4), (6, self.config.want_ipv6))
            if wish and version not in self._refused_families
        }
        missing = wanted - {address.version for address in self.addresses}
        settled = not missing or (self._settle_at is not None and now >= self._settle_at)
        stream = self._stream
        if not self.addresses or not settled or stream is None or not self._connection.handshake_confirmed:
            return
        stream.update_mtu()
        self._settle_at = self._give_up_at = None
        self._enter(ClientState.UP)
        self.up_since = now
        self._check_ipv6_fits(now)
        if not self.addresses:
            self._fail(CloseReason.NO_ADDRESS, f"No IPv4 address was assigned, and {self.ipv6_refusal}", now)
            return
        self._start_ipv6_check(now)
        self._events.append(
            Connected(
                time=now,
                remote=address_text(self.remote),
                addresses=self.addresses,
                inner_mtu=stream.mtu,
            )
        )
        self._events.append(RoutesChanged(time=now, routes=self.routes))

    def _follow_mtu(self, now: float) -> None:
        if self._stream is None or (change := self._stream.update_mtu()) is None:
            return
        self._events.append(InnerMtuChanged(time=now, old=change[0], new=change[1]))
        self._check_ipv6_fits(now)

    def _check_ipv6_fits(self, now: float) -> None:
        stream = self._stream
        if stream is not None and stream.mtu < MIN_IPV6_MTU and self._address6() is not None:
            self._refuse_ipv6(
                too_small_for_ipv6(stream.mtu),
                now,
            )

    def _start_ipv6_check(self, now: float) -> None:
        source = self._address6()
        if source is None or self._stream is None or self._stream.ipv6_check is not None:
            return
        self._stream.ipv6_check = Ipv6Check(
            source=source, destination=ALL_NODES, identifier=self._check_identifier, now=now
        )

    def _refuse_ipv6(self, reason: str, now: float) -> None:
        """Go on without IPv6 (RFC 9484 §7.2 would end the tunnel; docs/design/0003-connect-ip-decisions.md)."""
        if self.ipv6_refusal is not None:
            return
        self.ipv6_refusal = reason
        self.addresses = tuple(address for address in self.addresses if address.version == 4)
        self._update_policies()
        logger.warning("no IPv6 through the tunnel: %s", reason)
        self._events.append(Ipv6Refused(time=now, reason=reason))
        if self.state is ClientState.UP and self.addresses:
            self._events.append(AddressesChanged(time=now, addresses=self.addresses))
        elif self.state is ClientState.UP and self.up_since != now:
            self._fail(CloseReason.NO_ADDRESS, f"Nothing can be carried: {reason}", now)

    def _update_policies(self) -> None:
        stream = self._stream
        if stream is None:
            return
        sources: list[IPNetwork] = [address.network for address in self.addresses]
        sources += self.config.advertise
        ipv6 = self._address6() is not None or any(network.version == 6 for network in self.config.advertise)
        stream.set_policies(
            egress=Policy(sources=sources, ipv6=ipv6, link_local=True),
            ingress=Policy(own_addresses=self._own_addresses, ipv6=ipv6),
        )
        self._icmp.address4 = self._address4()
        self._icmp.address6 = self._address6()

    def _address4(self) -> IPv4Address | None:
        return next((a.ip for a in self.addresses if isinstance(a, IPv4Interface)), None)

    def _address6(self) -> IPv6Address | None:
        return next((a.ip for a in self.addresses if isinstance(a, IPv6Interface)), None)

    # endings

    def _send_capsules(self) -> None:
        stream = self._stream
        if stream is not None and self.state is not ClientState.CLOSED:
            data = stream.session.data_to_send()
            if data:
                self._connection.send_data(stream.stream_id, data)

    def _enter(self, state: ClientState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise AssertionError(f"{self.state.name} cannot become {state.name}")
        logger.debug("%s: %s -> %s", address_text(self.remote), self.state.name, state.name)
        self.state = state

    def _fail(self, reason: CloseReason, text: str, now: float, error_code: int = H3_REQUEST_CANCELLED) -> None:
        if self.state is ClientState.CLOSED:
            return
        if self._stream_id is not None and reason is not CloseReason.LOCAL:
            self._connection.reset_stream(self._stream_id, H3_REQUEST_CANCELLED)
        self._connection.close(error_code=error_code, reason=text)
        self._closed(reason, text, now)

    def _closed(self, reason: CloseReason, text: str, now: float) -> None:
        if self.state is ClientState.CLOSED:
            return
        self._enter(ClientState.CLOSED)
        self._events.append(Closed(time=now, reason=reason, text=text))
