"""One connection attempt with its socket, and the race between the addresses of one server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from qtunnel.aio.driver import Driver, FileTunEdge, PacketPort
from qtunnel.aio.health import Health
from qtunnel.burst import Address
from qtunnel.config import ClientConfig
from qtunnel.errors import (
    AuthenticationError,
    ConnectionFailedError,
    QTunnelError,
    ServerNotVerifiedError,
    SystemSetupError,
)
from qtunnel.linux.udp import UdpSocket
from qtunnel.quic.settings import ConnectionSettings
from qtunnel.tunnel.client import ClientTunnel
from qtunnel.tunnel.events import Closed, CloseReason, Connected, ServerVerified, TunnelEvent
from qtunnel.tunnel.reconnect import is_final

__all__ = ["Attempt", "closed_error", "race"]

logger = logging.getLogger(__name__)

STAGGER: Final = 0.3
"""Seconds before the next address is tried beside the first (RFC 8305 §5 says 250 ms for TCP)."""


class Attempt:
    """One ClientTunnel with its socket and driver.

    verified: done once the server is verified, or with the error that ended the attempt before. up: done once the
    tunnel is up, likewise. inbox gets every other event once the tunnel is up. Call close() in any case.
    """

    def __init__(self, core: ClientTunnel, udp: UdpSocket, inbox: Callable[[TunnelEvent], None]) -> None:
        loop = asyncio.get_running_loop()
        self.core = core
        self.udp = udp
        self.verified: asyncio.Future[None] = loop.create_future()
        self.up: asyncio.Future[Connected] = loop.create_future()
        self._inbox = inbox
        self._driver: Driver | None = None

    @classmethod
    def start(
        cls,
        config: ClientConfig,
        settings: ConnectionSettings,
        remote: Address,
        inbox: Callable[[TunnelEvent], None],
        *,
        check_identifier: int,
    ) -> Attempt:
        """Open a socket of the remote's family and send the first flight.

        Raises: SystemSetupError, ConfigError.
        """
        udp = UdpSocket.open(
            ("::", 0) if ":" in remote[0] else ("0.0.0.0", 0),
            gso=config.quic.gso,
            gro=config.quic.gro,
            receive_buffer=config.lab.receive_buffer(config.quic.receive_buffer),
            send_buffer=config.quic.send_buffer,
        )
        try:
            now = monotonic()
            core = ClientTunnel(
                config, settings, remote, now, check_identifier=check_identifier, hold_request=True
            )
            attempt = cls(core, udp, inbox)
            health = Health(sending_limit=core.sending_limit, receive_drops=udp.drops)
            attempt._driver = Driver(core, sockets=[udp], on_events=attempt._on_events, health=health)
        except BaseException:
            udp.close()
            raise
        attempt._driver.start()
        return attempt

    @property
    def driver(self) -> Driver:
        """The driver."""
        assert self._driver is not None
        return self._driver

    def request_tunnel(self) -> None:
        """Send the request, and with it the token, to the verified server."""
        self.core.allow_request(monotonic())
        self.driver.flush()

    def attach(self, *, tun: FileTunEdge | None, port: PacketPort | None) -> None:
        """Carry packets from now on."""
        self.driver.attach(tun=tun, port=port)

    def close(self) -> None:
        """Tell the server, as far as one datagram can, and let go of the socket."""
        if self._driver is None:
            return
        self.core.close(monotonic())
        self._driver.flush()
        self._driver.close()
        self.udp.close()
        self._driver = None
        for future in (self.verified, self.up):
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()  # seen; asyncio would complain about an error nobody looked at

    def _on_events(self) -> None:
        while (event := self.core.next_event()) is not None:
            if isinstance(event, ServerVerified):
                if not self.verified.done():
                    self.verified.set_result(None)
            elif isinstance(event, Connected):
                if not self.up.done():
                    self.up.set_result(event)
            elif isinstance(event, Closed) and not self.up.done():
                error = closed_error(event)
                self.up.set_exception(error)
                if not self.verified.done():
                    self.verified.set_exception(error)
            else:
                self._inbox(event)


async def race(remotes: Sequence[Address], start: Callable[[Address], Attempt]) -> Attempt:
    """Try the addresses in order, each a little after the one before; return the first whose server is verified.

    The request is not sent yet: only the winner may send the token. The losers are closed.

    Raises: the last error when all fail.
    """
    attempts: list[Attempt] = []
    errors: list[QTunnelError] = []
    winner: Attempt | None = None
    waiting = list(remotes)
    try:
        while waiting or any(not attempt.verified.done() for attempt in attempts):
            if waiting:
                remote = waiting.pop(0)
                try:
                    attempts.append(start(remote))
                except SystemSetupError as error:
                    errors.append(error)
            pending = {attempt.verified for attempt in attempts if not attempt.verified.done()}
            if pending:
                await asyncio.wait(
                    pending, timeout=STAGGER if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
            winner = next((a for a in attempts if a.verified.done() and a.verified.exception() is None), None)
            if winner is not None:
                return winner
        for attempt in attempts:
            failure = attempt.verified.exception()
            if isinstance(failure, QTunnelError):
                errors.append(failure)
        raise _worst(errors)
    finally:
        for attempt in attempts:
            if attempt is not winner:
                with contextlib.suppress(OSError):
                    attempt.close()


def _worst(errors: list[QTunnelError]) -> QTunnelError:
    """Return the error that tells most: a server that is not the right one before one that does not answer."""
    for kind in (ServerNotVerifiedError, AuthenticationError):
        for error in errors:
            if isinstance(error, kind):
                return error
    if len(errors) > 1:
        return ConnectionFailedError("; ".join(dict.fromkeys(str(error) for error in errors)))
    return errors[0] if errors else ConnectionFailedError("the server has no address to try")


def closed_error(event: Closed) -> QTunnelError:
    """Return what to raise for a connection that ended with this event."""
    match event.reason:
        case CloseReason.AUTHENTICATION:
            return AuthenticationError(event.text)
        case CloseReason.NOT_VERIFIED:
            return ServerNotVerifiedError(event.text)
        case _:
            return ConnectionFailedError(event.text, is_final=is_final(event.reason))
