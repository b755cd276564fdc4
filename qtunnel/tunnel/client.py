"""The client's side of one connection: from the first packet to the tunnel being up, and until it ends.

One ClientTunnel is one attempt. A new attempt is a new object (qtunnel.aio.client decides when, with
qtunnel.tunnel.reconnect); what must outlive it, such as the TUN, is not here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from enum import Enum
from typing import Any, Final

from qtunnel.burst import Address, Burst, Received, Transmit, address_text
from qtunnel.config import ClientConfig, IPAddress, IPInterface, IPNetwork
from qtunnel.drops import DropReason
from qtunnel.errors import PeerProtocolError
from qtunnel.masque.datagram import CONTEXT_PREFIX
from qtunnel.masque.header_fields import Headers
from qtunnel.masque.request import ResponseRejectedError, build_request, check_response, is_interim_response
from qtunnel.masque.uri_template import default_template, parse_template
from qtunnel.packet_run import Packets
from qtunnel.quic.events import (
    ConnectionClosed,
    DatagramsReceived,
    DataReceived,
    GoawayReceived,
    HandshakeCompleted,
    HeadersReceived,
    HttpEvent,
    PacketSizeChanged,
    PacketsReceived,
    PacketsReturned,
    SettingsReceived,
    StreamReset,
)
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.quic.settings import ConnectionSettings
from qtunnel.tunnel.client_session import ClientSession
from qtunnel.tunnel.endings import H3_NO_ERROR, H3_REQUEST_CANCELLED, describe_close
from qtunnel.tunnel.events import Closed, CloseReason, Connected, RoutesChanged, ServerVerified, TunnelEvent
from qtunnel.tunnel.stats import TrafficStats

__all__ = ["ClientState", "ClientTunnel", "tunnel_request"]

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT: Final = 10.0
"""Seconds from the end of the handshake until the tunnel must be up."""
RETRY_STATUS: Final = frozenset((429, 503))
"""Refusals that may be over the next time."""


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
    ClientState.CLOSED: set[ClientState](),
}


def tunnel_request(config: ClientConfig) -> Headers:
    """Return the request a client makes with this configuration.

    Raises: ConfigError for a uri_template, target or ipproto that makes none.
    """
    template = (
        default_template(config.server, config.port)
        if config.uri_template is None
        else parse_template(config.uri_template)
    )
    return build_request(template=template, target=config.target, ipproto=config.ipproto, token=config.token)


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
        self._request = tunnel_request(config)
        self.state = ClientState.HANDSHAKE
        self.session: ClientSession | None = None
        self.up_since: float | None = None
        self.stats = TrafficStats()
        self._connection = HttpConnection.client(settings, remote, now)
        self._own_addresses = own_addresses
        self._check_identifier = check_identifier
        self._hold_request = hold_request
        self._peer_settings: SettingsReceived | None = None
        self._stream_id: int | None = None
        self._give_up_at: float | None = None
        self._events: deque[TunnelEvent] = deque()
        self._to_tun: list[Packets] = []

    # what comes in

    def receive_from_tun(self, burst: Burst) -> None:
        """Take inner packets for the server. Before the tunnel is up they are dropped and counted."""
        if self.session is None or self.state is not ClientState.UP:
            self.stats.drops[DropReason.NO_SESSION] += len(burst.packets)
            return
        replies = self.session.stream.send(burst.packets, burst.now)
        if replies:
            self._to_tun.append(replies)

    def receive_from_udp(self, received: list[Received], now: float) -> None:
        """Take UDP datagrams read in one wake-up."""
        self._connection.receive_from_udp(received, now)
        self._advance(now)

    def handle_timer(self, now: float) -> None:
        """Do what is due at now."""
        self._connection.handle_timer(now)
        if self._give_up_at is not None and now >= self._give_up_at:
            self._give_up_at = None
            if self.state is ClientState.OPENING:
                self._fail(CloseReason.NO_ADDRESS, "the server accepted the request but assigned no address", now)
            else:
                self._fail(CloseReason.NO_ANSWER, "the server did not answer the request in time", now)
        self._advance(now)

    def on_stall(self, duration: float, now: float) -> None:
        """Take note that this process slept so long; to be called before what came meanwhile is given to it."""
        self._connection.on_stall(duration, now)

    def on_refused(self, transmit: Transmit, now: float) -> None:
        """Take note that the kernel refused to send this as too large (EMSGSIZE)."""
        self._connection.on_refused(transmit.segment_size or len(transmit.data), now)
        self._advance(now)

    def on_packet_too_big(self, remote: Address, mtu: int, quoted: bytes, now: float) -> None:
        """Take an ICMP message about a packet to remote whose UDP payload begins with quoted: a hint, no more."""
        del remote
        self._connection.on_packet_too_big(mtu, quoted, now)
        self._advance(now)

    def allow_request(self, now: float) -> None:
        """Go on after hold_request: this address of the server won."""
        self._hold_request = False
        self._advance(now)  # the connection may have ended since the last datagram was read
        self._send_request(now)

    def set_own_addresses(self, addresses: Collection[IPAddress]) -> None:
        """Tell the tunnel this host's present addresses."""
        self._own_addresses = addresses
        if self.session is not None:
            self.session.set_own_addresses(addresses)

    def close(self, now: float) -> None:
        """End the tunnel and the connection. Send what datagrams_to_send returns."""
        self._fail(CloseReason.LOCAL, "closed by this side", now, error_code=H3_NO_ERROR)

    # what comes out

    def get_timer(self) -> float | None:
        """Return when handle_timer is due, or None."""
        timers = [self._connection.get_timer()]
        if self.state is not ClientState.CLOSED:
            timers.append(self._give_up_at)
            if self.session is not None:
                timers.append(self.session.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        """Return what to send on UDP."""
        transmits = self._connection.datagrams_to_send(now)
        if self._connection.is_terminated and self.state is not ClientState.CLOSED:
            self._advance(now)  # it ended in sending, and no timer of it would ever tell
        return transmits

    def packets_to_write(self) -> list[Packets]:
        """Return inner packets for the TUN, in groups, ICMP errors among them."""
        packets, self._to_tun = self._to_tun, []
        return packets

    def next_event(self) -> TunnelEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def has_room_for_read(self) -> bool:
        """Return whether the TUN may be read now; if not, packets stay where their senders notice."""
        return self._connection.has_room_for_read()

    def sending_limit(self, now: float) -> SendingLimit:
        """Return what keeps inner packets from leaving, to be asked after datagrams_to_send."""
        return self._connection.sending_limit(now)

    @property
    def addresses(self) -> tuple[IPInterface, ...]:
        """Our addresses inside; empty before the tunnel is up."""
        return () if self.session is None else self.session.addresses

    @property
    def routes(self) -> tuple[IPNetwork, ...]:
        """What the server routes, as prefixes."""
        return () if self.session is None else self.session.routes

    @property
    def inner_mtu(self) -> int:
        """The largest inner packet, in bytes; 0 before the tunnel is up."""
        return 0 if self.session is None else self.session.stream.mtu

    def status(self, now: float) -> dict[str, Any]:
        """Return what `qtunnel status` shows of this connection."""
        self._collect_drops()
        quic = self._connection.stats()
        path = self._connection.path_mtu_status(now)
        refusal = None if self.session is None else self.session.ipv6_refusal
        return {
            "state": self.state.value,
            "remote": address_text(self.remote),
            "since_s": None if self.up_since is None else round(now - self.up_since, 1),
            "addresses": [str(address) for address in self.addresses],
            "peer_routes": [str(route) for route in self.routes],
            "inner_mtu": self.inner_mtu,
            "ipv6": refusal or ("ok" if any(each.version == 6 for each in self.addresses) else "not assigned"),
            "path_mtu": path["mtu"],
            "path": path,
            "rtt_ms": round(quic.smoothed_rtt * 1000, 2),
            "key_updates": quic.key_updates,
            **self.stats.as_dict(),
        }

    # events of the connection

    def _advance(self, now: float) -> None:
        while (event := self._connection.next_event()) is not None:
            try:
                self._handle_event(event, now)
            except PeerProtocolError as error:
                text = f"the server broke the protocol: {error}"
                self._fail(CloseReason.PROTOCOL, text, now, error_code=error.error_code)
        session = self.session
        if session is None or self.state is ClientState.CLOSED:
            return
        if self.state is ClientState.OPENING:
            if session.is_settled(now):
                self._come_up(session, now)
            elif session.refusal is not None:
                self._fail(CloseReason.NO_ADDRESS, f"nothing can be carried: {session.refusal}", now)
                return
        session.advance(now)
        self._take_replies(session)
        self._events += session.events
        session.events.clear()
        if self.state is ClientState.UP and not session.addresses:
            why = session.ipv6_refusal or "the server withdrew our addresses"
            self._fail(CloseReason.NO_ADDRESS, f"nothing can be carried: {why}", now)

    def _handle_event(self, event: HttpEvent, now: float) -> None:
        if self.state is ClientState.CLOSED:
            return
        match event:
            case PacketsReceived():
                self._receive_packets(event, now)
            case DatagramsReceived():
                self._receive_datagrams(event, now)
            case PacketSizeChanged() | PacketsReturned():
                self._follow_size(event, now)
            case HandshakeCompleted():
                self._enter(ClientState.WAITING_FOR_SETTINGS)
                self._give_up_at = now + REQUEST_TIMEOUT
                self._events.append(ServerVerified(time=now, remote=address_text(self.remote)))
            case SettingsReceived():
                self._peer_settings = event
                self._send_request(now)
            case HeadersReceived():
                self._receive_response(event, now)
            case DataReceived():
                self._receive_data(event, now)
            case StreamReset() if event.stream_id == self._stream_id:
                text = f"the server reset the tunnel's stream (code {event.error_code:#x})"
                self._fail(CloseReason.PEER, text, now)
            case GoawayReceived():
                self._fail(CloseReason.SHUTDOWN, "the server is shutting down", now, error_code=H3_NO_ERROR)
            case ConnectionClosed():
                was_up = self.state is ClientState.UP
                self._closed(*describe_close(event, was_up=was_up, remote=self.remote), now)

    def _send_request(self, now: float) -> None:
        settings = self._peer_settings
        if self.state is not ClientState.WAITING_FOR_SETTINGS or self._hold_request or settings is None:
            return
        if not settings.extended_connect:
            text = "the server does not offer extended CONNECT (RFC 9220), so it is no CONNECT-IP proxy"
            self._fail(CloseReason.UNSUPPORTED, text, now)
            return
        if not settings.datagrams:
            text = "the server does not offer HTTP Datagrams (RFC 9297)"
            self._fail(CloseReason.UNSUPPORTED, text, now)
            return
        self._stream_id = self._connection.send_request(self._request)
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
            self._refused(error, now)
            return
        if event.end:
            self._fail(CloseReason.PEER, "the server ended the tunnel with its answer", now)
            return
        self._enter(ClientState.OPENING)
        self.session = ClientSession(
            self.config,
            self._connection,
            event.stream_id,
            own_addresses=self._own_addresses,
            check_identifier=self._check_identifier,
            stats=self.stats,
        )

    def _refused(self, error: ResponseRejectedError, now: float) -> None:
        if error.status in (401, 403):
            text = f"the server refused the token (status {error.status}). Ask its operator for a new join link"
            self._fail(CloseReason.AUTHENTICATION, text, now, error_code=H3_NO_ERROR)
            return
        reason = CloseReason.PEER if error.status in RETRY_STATUS else CloseReason.REFUSED
        self._fail(reason, f"the server refused the tunnel: {error}", now, error_code=H3_NO_ERROR)

    def _receive_data(self, event: DataReceived, now: float) -> None:
        session = self.session
        if session is None or event.stream_id != self._stream_id:
            return
        packets = session.receive_data(event.data, event.end, now)
        if packets:
            self._to_tun += session.stream.receive(packets, now)
        if session.stream.ended:
            self._fail(CloseReason.PEER, "the server ended the tunnel", now, error_code=H3_NO_ERROR)

    def _receive_packets(self, event: PacketsReceived, now: float) -> None:
        if self.session is None:
            self.stats.drops[DropReason.NO_SESSION] += len(event.packets)
        else:
            self._to_tun += self.session.stream.receive(event.packets, now)

    def _follow_size(self, event: PacketSizeChanged | PacketsReturned, now: float) -> None:
        if self.session is None:
            return
        if isinstance(event, PacketsReturned):
            self.session.stream.resend(event.packets, now)
        else:
            self.session.advance(now)
        self._take_replies(self.session)

    def _take_replies(self, session: ClientSession) -> None:
        replies = session.stream.replies
        if replies:
            session.stream.replies = []
            self._to_tun.append(replies)

    def _receive_datagrams(self, event: DatagramsReceived, now: float) -> None:
        if self.session is None:
            self.stats.drops[DropReason.NO_SESSION] += len(event.payloads)
        else:
            self._to_tun += self.session.stream.receive_datagrams(event.payloads, now)

    # states

    def _come_up(self, session: ClientSession, now: float) -> None:
        session.come_up(now)
        self._give_up_at = None
        self._enter(ClientState.UP)
        self.up_since = now
        if session.addresses:
            self._events.append(
                Connected(
                    time=now,
                    remote=address_text(self.remote),
                    addresses=session.addresses,
                    inner_mtu=session.stream.mtu,
                )
            )
            self._events.append(RoutesChanged(time=now, routes=session.routes))

    def _enter(self, state: ClientState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise AssertionError(f"{self.state.name} cannot become {state.name}")
        logger.debug("%s: %s -> %s", address_text(self.remote), self.state.name, state.name)
        self.state = state

    def _fail(self, reason: CloseReason, text: str, now: float, *, error_code: int = H3_REQUEST_CANCELLED) -> None:
        if self.state is ClientState.CLOSED:
            return
        if self._stream_id is not None and reason is not CloseReason.LOCAL:
            self._connection.reset_stream(self._stream_id, H3_REQUEST_CANCELLED)
        self._connection.close(error_code=error_code, reason=text)
        self._closed(reason, text, now)

    def _collect_drops(self) -> None:
        if self.session is not None:
            self.session.stream.collect_drops()

    def _closed(self, reason: CloseReason, text: str, now: float) -> None:
        self._collect_drops()
        self._enter(ClientState.CLOSED)
        self._events.append(Closed(time=now, reason=reason, text=text))
