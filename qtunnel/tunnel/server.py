"""The server's side: many connections, users and their sessions, and which packet belongs to whom."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_network
from typing import Any, Final

from qtunnel.burst import Address, Burst, Received, Transmit, address_text
from qtunnel.config import IPAddress, IPNetwork, ServerConfig, User
from qtunnel.drops import DropCounts, DropReason
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.ip.address import is_link_local
from qtunnel.ip.forward import IcmpErrors
from qtunnel.ip.policy import destination
from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.endpoint import Endpoint
from qtunnel.quic.events import (
    ConnectionClosed,
    DatagramsReceived,
    DataReceived,
    HeadersReceived,
    HttpEvent,
    PacketSizeChanged,
    PacketsReceived,
    PacketsReturned,
    StreamReset,
)
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.quic.settings import EndpointSettings
from qtunnel.tunnel.address_pool import AddressPool
from qtunnel.tunnel.admission import Admission, Admitted, PendingName, Refused
from qtunnel.tunnel.endings import H3_NO_ERROR, H3_REQUEST_CANCELLED, H3_REQUEST_REJECTED
from qtunnel.tunnel.events import CloseReason, RequestRefused, ResolveName, SessionClosed, TunnelEvent
from qtunnel.tunnel.routing_table import RoutingTable
from qtunnel.tunnel.server_session import ServerSession
from qtunnel.tunnel.stats import TrafficStats, drops_as_dict

__all__ = ["ServerTunnel"]

logger = logging.getLogger(__name__)

LINGER: Final = 1.0
"""Seconds a connection stays open after a refusal, for the client to read the status and close."""


class ServerTunnel:
    """The six verbs for a whole server.

    settings.max_udp_payload is what the path carries over IPv4. users: who may connect. leases: host numbers from
    an earlier run (AddressPool). own_addresses: this host's addresses, refused as a source of clients' packets.
    """

    def __init__(
        self,
        config: ServerConfig,
        settings: EndpointSettings,
        *,
        users: Iterable[User],
        leases: Mapping[str, int] | None = None,
        own_addresses: Collection[IPAddress] = (),
    ) -> None:
        self.config = config
        self.pool = AddressPool(config.pool4, config.pool6, leases)
        self.stats = TrafficStats()
        self._own_addresses: Collection[IPAddress] = own_addresses
        self._endpoint = Endpoint(settings)
        self._udp_payload = settings.max_udp_payload
        self._finds_path_mtu = settings.path_mtu is not None
        self._admission = Admission(config, self.pool, users)
        self._sessions: dict[str, ServerSession] = {}
        self._by_connection: dict[HttpConnection, ServerSession] = {}
        self._routes: RoutingTable[ServerSession] = RoutingTable()
        self._pending_names: dict[int, tuple[HttpConnection, int, PendingName]] = {}
        self._next_name = 1
        self._closing: dict[HttpConnection, tuple[float, int, str]] = {}
        self._timed: set[ServerSession] = set()
        self._icmp = IcmpErrors(
            address4=None if config.pool4 is None else config.pool4.ip,
            address6=None if config.pool6 is None else config.pool6.ip,
            rate=config.icmp_rate,
            burst=config.icmp_burst,
        )
        self._events: deque[TunnelEvent] = deque()
        self._to_tun: list[Packets] = []

    # what comes in

    def receive_from_tun(self, burst: Burst) -> None:
        """Send inner packets to the clients they are for; order is kept within a client."""
        now = burst.now
        lookup = self._routes.lookup
        packets = burst.packets
        if isinstance(packets, PacketRun) and packets.is_flow:
            session = lookup(destination(packets[0]))
            if session is None:
                self._no_route(packets[0], now, count=packets.rows)
            else:
                self._send_to(session, packets, now)
            return
        groups: dict[ServerSession, list[bytes]] = {}
        for packet in packets:
            session = lookup(destination(packet))
            if session is None:
                self._no_route(packet, now)
            else:
                groups.setdefault(session, []).append(packet)
        for session, group in groups.items():
            self._send_to(session, group, now)

    def _send_to(self, session: ServerSession, packets: Packets, now: float) -> None:
        replies = session.stream.send(packets, now)
        if replies:
            self._to_tun.append(replies)

    def receive_from_udp(self, received: list[Received], now: float) -> None:
        """Take UDP datagrams read in one wake-up."""
        self._endpoint.receive_from_udp(received, now)
        self._advance(now)

    def handle_timer(self, now: float) -> None:
        """Do what is due at now."""
        self._endpoint.handle_timer(now)
        for connection, (due, error_code, text) in list(self._closing.items()):
            if now >= due:
                del self._closing[connection]
                connection.close(error_code=error_code, reason=text)
        self._advance(now)
        for session in list(self._timed):
            self._run_check(session, now)

    def on_stall(self, duration: float, now: float) -> None:
        """Take note that this process slept so long; to be called before what came meanwhile is given to it."""
        self._endpoint.on_stall(duration, now)

    def on_refused(self, transmit: Transmit, now: float) -> None:
        """Take note that the kernel refused to send this as too large (EMSGSIZE)."""
        self._endpoint.on_refused(transmit, now)
        self._advance(now)

    def on_packet_too_big(self, remote: Address, mtu: int, quoted: bytes, now: float) -> None:
        """Take an ICMP message about a packet to remote whose UDP payload begins with quoted: a hint, no more."""
        self._endpoint.on_packet_too_big(remote, mtu, quoted, now)
        self._advance(now)

    def set_users(self, users: Iterable[User], now: float) -> None:
        """Replace the users. A user who is gone, or has a new token, loses the live session at once."""
        self._admission.set_users(users)
        for name, session in list(self._sessions.items()):
            user = self._admission.user(name)
            if user is None or user.token_sha256 != session.user.token_sha256:
                self._end(session, CloseReason.USER_REMOVED, now, error_code=H3_REQUEST_CANCELLED)
            elif user != session.user:
                session.set_user(user, now)
                self._update_routes(session)
        for name in [name for name in self.pool.leases() if self._admission.user(name) is None]:
            self.pool.release(name)

    def set_own_addresses(self, addresses: Collection[IPAddress]) -> None:
        """Tell the tunnel this host's present addresses."""
        self._own_addresses = addresses
        for session in self._sessions.values():
            session.set_own_addresses(addresses)

    def name_resolved(self, number: int, addresses: Collection[IPAddress], now: float) -> None:
        """Answer ResolveName: the addresses of the name, none if it does not resolve (RFC 9484 §4.1)."""
        pending = self._pending_names.pop(number, None)
        if pending is not None:
            connection, stream_id, request = pending
            self._decide(connection, stream_id, self._admission.resolved(request, addresses), now)
            self._advance(now)

    def shut_down(self, now: float) -> None:
        """End every session and connection; send what datagrams_to_send returns."""
        for session in list(self._sessions.values()):
            session.connection.goaway()
            self._end(session, CloseReason.SHUTDOWN, now, error_code=H3_NO_ERROR)
        self._endpoint.close_all(H3_NO_ERROR, CloseReason.SHUTDOWN.value)

    # what comes out

    def get_timer(self) -> float | None:
        """Return when handle_timer is due, or None."""
        timers = [self._endpoint.get_timer()]
        timers += [due for due, _, _ in self._closing.values()]
        timers += [session.stream.get_timer() for session in self._timed]
        return min((timer for timer in timers if timer is not None), default=None)

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        """Return what to send on UDP."""
        return self._endpoint.datagrams_to_send(now)

    def packets_to_write(self) -> list[Packets]:
        """Return inner packets for the TUN, in groups, ICMP errors among them."""
        packets, self._to_tun = self._to_tun, []
        return packets

    def next_event(self) -> TunnelEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def has_room_for_read(self) -> bool:
        """Return whether the TUN may be read now: always, as clients must not block each other.

        A client whose queue is full loses packets, counted, and the others go on.
        """
        return True

    def sending_limit(self, now: float) -> SendingLimit:
        """Note what limits each session, and return what limits most of those that are limited."""
        seen = Counter(session.note_limit(now) for session in self._sessions.values())
        del seen[SendingLimit.NOTHING]
        return seen.most_common(1)[0][0] if seen else SendingLimit.NOTHING

    @property
    def sessions(self) -> tuple[ServerSession, ...]:
        """Return the live sessions."""
        return tuple(self._sessions.values())

    def status(self, now: float) -> dict[str, Any]:
        """Return what `qtunnel status` shows of the server."""
        drops = DropCounts(self.stats.drops)
        drops.update(self._endpoint.drops)
        return {
            "users": self._admission.user_count,
            "sessions": [session.status(now) for session in self._sessions.values()],
            "connections": len(self._endpoint.connections),
            "handshakes": self._endpoint.handshakes_in_progress,
            "retry_active": self._endpoint.retry_active,
            "retries_sent": self._endpoint.retries_sent,
            "internal_errors": self._endpoint.internal_errors,
            "drops": drops_as_dict(drops),
        }

    # events of the connections

    def _advance(self, now: float) -> None:
        while (item := self._endpoint.next_event()) is not None:
            connection, event = item
            try:
                self._handle_event(connection, event, now)
            except PeerProtocolError as error:
                self._peer_error(connection, event, error, now)

    def _handle_event(self, connection: HttpConnection, event: HttpEvent, now: float) -> None:
        session = self._by_connection.get(connection)
        match event:
            case PacketsReceived() | PacketsReturned() | DatagramsReceived() | StreamReset():
                if session is not None and event.stream_id == session.stream.stream_id:
                    self._handle_session_event(session, event, now)
                elif isinstance(event, PacketsReceived | PacketsReturned):
                    self.stats.drops[DropReason.NO_SESSION] += len(event.packets)
            case PacketSizeChanged():
                if session is not None:
                    self._run_check(session, now)
            case HeadersReceived():
                self._receive_request(connection, event, now)
            case DataReceived():
                self._receive_data(connection, session, event, now)
            case ConnectionClosed():
                self._connection_closed(connection, session, event, now)
            case _:
                pass

    def _handle_session_event(
        self,
        session: ServerSession,
        event: PacketsReceived | PacketsReturned | DatagramsReceived | StreamReset,
        now: float,
    ) -> None:
        match event:
            case PacketsReceived():
                self._dispatch(session, session.stream.receive(event.packets, now), now)
            case PacketsReturned():
                session.stream.resend(event.packets, now)
                self._take_replies(session)
            case DatagramsReceived():
                self._dispatch(session, session.stream.receive_datagrams(event.payloads, now), now)
            case StreamReset():
                self._end(session, CloseReason.PEER, now, error_code=H3_NO_ERROR)

    def _receive_request(self, connection: HttpConnection, event: HeadersReceived, now: float) -> None:
        is_pending = any(each is connection for each, _, _ in self._pending_names.values())
        if is_pending or connection in self._by_connection or connection in self._closing:
            # One tunnel a connection: a second request would need a second address, and a second look-up.
            connection.reset_stream(event.stream_id, H3_REQUEST_REJECTED)
            return
        self._decide(connection, event.stream_id, self._admission.decide(event.headers, end=event.end), now)

    def _decide(
        self, connection: HttpConnection, stream_id: int, verdict: Admitted | Refused | PendingName, now: float
    ) -> None:
        try:
            match verdict:
                case Refused():
                    self._refuse(connection, stream_id, verdict, now)
                case PendingName():
                    self._pending_names[self._next_name] = (connection, stream_id, verdict)
                    self._events.append(ResolveName(time=now, number=self._next_name, name=verdict.name))
                    self._next_name += 1
                case Admitted():
                    self._admit(connection, stream_id, verdict, now)
        except LocalProtocolError as error:
            # The client has reset the stream, or closed the connection, right behind its request.
            logger.debug("%s: the request was taken back: %s", address_text(connection.remote), error)

    def _refuse(self, connection: HttpConnection, stream_id: int, refused: Refused, now: float) -> None:
        connection.send_headers(stream_id, refused.headers, end=True)
        text = f"{refused.text} (status {refused.status})"
        remote = address_text(connection.remote)
        logger.info("%s: request refused: %s", remote, text)
        self._events.append(RequestRefused(time=now, remote=remote, status=refused.status, text=refused.text))
        if refused.close:
            # A client that ignores the answer would otherwise sit there for ever.
            self._closing[connection] = (now + LINGER, H3_REQUEST_REJECTED, text)

    def _admit(self, connection: HttpConnection, stream_id: int, admitted: Admitted, now: float) -> None:
        if ":" in connection.remote[0] and not self._finds_path_mtu:
            # The settings are for IPv4; an IPv6 header is 20 bytes longer.
            connection.set_max_udp_payload(self._udp_payload - 20)
        session = ServerSession(
            self.config, connection, stream_id, admitted, own_addresses=self._own_addresses, now=now
        )
        ghost = self._sessions.get(admitted.user.name)
        if ghost is not None:
            self._end(ghost, CloseReason.REPLACED, now, error_code=H3_REQUEST_REJECTED)
        self._sessions[admitted.user.name] = session
        self._by_connection[connection] = session
        for address in admitted.lease.addresses():
            self._routes.add(ip_network(address), session)
        self._timed.add(session)
        self._collect(session)
        self._run_check(session, now)

    def _receive_data(
        self, connection: HttpConnection, session: ServerSession | None, event: DataReceived, now: float
    ) -> None:
        if session is None or event.stream_id != session.stream.stream_id:
            return
        packets = session.receive_data(event.data, event.end, now)
        self._update_routes(session)
        self._collect(session)
        if packets:
            self._dispatch(session, session.stream.receive(packets, now), now)
        if session.stream.ended:
            self._end(session, CloseReason.PEER, now, error_code=H3_NO_ERROR)

    def _connection_closed(
        self, connection: HttpConnection, session: ServerSession | None, event: ConnectionClosed, now: float
    ) -> None:
        self._closing.pop(connection, None)
        for number in [number for number, (each, _, _) in self._pending_names.items() if each is connection]:
            del self._pending_names[number]
        if session is not None:
            reason = CloseReason.IDLE if event.cause.name == "IDLE_TIMEOUT" else CloseReason.PEER
            self._forget(session, reason, event.reason or reason.value, now)

    def _peer_error(
        self, connection: HttpConnection, event: HttpEvent, error: PeerProtocolError, now: float
    ) -> None:
        remote = address_text(connection.remote)
        logger.warning("%s: the client broke the protocol: %s", remote, error)
        stream_id = getattr(event, "stream_id", None)
        if isinstance(stream_id, int):
            connection.reset_stream(stream_id, error.error_code)
        session = self._by_connection.get(connection)
        if session is not None and session.stream.stream_id == stream_id:
            self._forget(session, CloseReason.PROTOCOL, str(error), now)
            self._closing[connection] = (now + LINGER, error.error_code, str(error))

    # packets

    def _dispatch(self, session: ServerSession, accepted: list[Packets], now: float) -> None:
        """Hand accepted inner packets of a client to the TUN, or to the client they are for."""
        lookup = self._routes.lookup
        for group in accepted:
            if isinstance(group, PacketRun) and group.is_flow:
                target = lookup(destination(group[0]))
                if target is None:
                    self._to_tun.append(group)
                else:
                    self._client_to_client(session, target, group, now)
                continue
            to_tun: list[bytes] = []
            to_clients: dict[ServerSession, list[bytes]] = {}
            for packet in group:
                target = lookup(destination(packet))
                if target is None:
                    to_tun.append(packet)
                else:
                    to_clients.setdefault(target, []).append(packet)
            if to_tun:
                self._to_tun.append(to_tun)
            for target, packets in to_clients.items():
                self._client_to_client(session, target, packets, now)

    def _client_to_client(
        self, session: ServerSession, target: ServerSession, packets: Packets, now: float
    ) -> None:
        if target is session:
            # Its own address, or a network it carries: sending it back would make a loop (RFC 4443 §3.1).
            session.refuse(packets, DropReason.NO_ROUTE, self._icmp, now)
        elif not self.config.client_to_client:
            session.refuse(packets, DropReason.CLIENT_TO_CLIENT, self._icmp, now)
        else:
            replies = target.stream.send(packets, now, routed_here=True)
            if replies:
                session.stream.send_unchecked(replies, now)

    def _no_route(self, packet: bytes, now: float, *, count: int = 1) -> None:
        """Drop count packets of one flow, of which this is the first."""
        address = destination(packet)
        if not address or is_link_local(address):
            # No IP packet, or the kernel's own multicast on the TUN, which nobody misses.
            self.stats.drops[DropReason.LINK_LOCAL if address else DropReason.MALFORMED] += count
            return
        self.stats.drops[DropReason.NO_ROUTE] += count
        reply = self._icmp.unreachable(packet, DropReason.NO_ROUTE, now)
        if reply is not None:
            self.stats.icmp_sent += 1
            self._to_tun.append([reply])

    # sessions

    def _collect(self, session: ServerSession) -> None:
        while session.events:
            self._events.append(session.events.popleft())

    def _update_routes(self, session: ServerSession) -> None:
        """Route the networks behind a client to it. The first user to carry a network keeps it."""
        wanted = set(session.prefixes) | {ip_network(address) for address in session.addresses}
        for network in self._routes.networks_of(session):
            if network not in wanted:
                self._routes.remove(network)
        for prefix in wanted:
            if self._routes.get(prefix) is None:
                self._routes.add(prefix, session)

    def _run_check(self, session: ServerSession, now: float) -> None:
        session.advance(now)
        self._collect(session)
        self._take_replies(session)
        if session.stream.get_timer() is None:
            self._timed.discard(session)
        else:
            self._timed.add(session)

    def _take_replies(self, session: ServerSession) -> None:
        replies = session.stream.replies
        if replies:
            session.stream.replies = []
            self._to_tun.append(replies)

    def _end(self, session: ServerSession, reason: CloseReason, now: float, *, error_code: int) -> None:
        session.connection.close(error_code=error_code, reason=reason.value)
        self._forget(session, reason, reason.value, now)

    def _forget(self, session: ServerSession, reason: CloseReason, text: str, now: float) -> None:
        if self._by_connection.pop(session.connection, None) is None:
            return
        if self._sessions.get(session.user.name) is session:
            del self._sessions[session.user.name]
        self._timed.discard(session)
        self._routes.remove_all(session)
        self._collect(session)
        session.stream.collect_drops()
        self.stats.drops.update(session.stream.stats.drops)
        self._events.append(
            SessionClosed(
                time=now,
                user=session.user.name,
                remote=address_text(session.connection.remote),
                reason=reason,
                text=text,
            )
        )

    def prefixes_in_use(self) -> set[IPNetwork]:
        """Return the networks behind clients that the kernel has to route into the TUN."""
        return {prefix for session in self._sessions.values() for prefix in session.prefixes}
