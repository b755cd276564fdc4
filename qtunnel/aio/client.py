"""A client's tunnel over its whole life: attempts, outages, and what the host is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any, Final

from qtunnel.aio.attempt import Attempt, closed_error, race
from qtunnel.aio.client_host import ClientHost
from qtunnel.aio.driver import PacketPort
from qtunnel.aio.event_stream import EventStream
from qtunnel.aio.logs import ConnectionLogs
from qtunnel.aio.path_mtu import path_mtu_settings, told_udp_payload
from qtunnel.aio.resolve import ServerName
from qtunnel.aio.socket_status import socket_status
from qtunnel.aio.uninterrupted import uninterrupted
from qtunnel.burst import Address, address_text
from qtunnel.config import ClientConfig, IPInterface
from qtunnel.drops import DropCounts
from qtunnel.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionFailedError,
    NetworkOverlapError,
    QTunnelError,
    ServerNotVerifiedError,
    SystemSetupError,
    TunLostError,
)
from qtunnel.linux.links import outgoing_mtu
from qtunnel.quic.segmented_sends import GsoVerdict
from qtunnel.quic.settings import ConnectionSettings
from qtunnel.tunnel.client import tunnel_request
from qtunnel.tunnel.events import (
    AddressesChanged,
    Closed,
    CloseReason,
    Connected,
    Connecting,
    Disconnected,
    InnerMtuChanged,
    RoutesChanged,
    TunnelEvent,
)
from qtunnel.tunnel.reconnect import Backoff
from qtunnel.tunnel.stats import TrafficStats, drops_as_dict

__all__ = ["TunnelClient"]

logger = logging.getLogger(__name__)

UP_TIMEOUT: Final = 15.0
"""Seconds from the server being verified to the tunnel being up; the core gives up sooner, with a reason."""


class TunnelClient:
    """One tunnel, kept up until closed. Made by qtunnel.connect().

    With use_tun the packets are the kernel's, else the application's: send() and receive().
    """

    def __init__(self, config: ClientConfig, *, use_tun: bool) -> None:
        self.config = config
        self._use_tun = use_tun
        self._events = EventStream()
        self._inbox: asyncio.Queue[TunnelEvent | BaseException] = asyncio.Queue()
        self._logs = ConnectionLogs(config.quic)
        self._host: ClientHost | None = None
        self._port = None if use_tun else PacketPort()
        self._server = ServerName(config.server, config.port)
        self._attempt: Attempt | None = None
        self._task: asyncio.Task[None] | None = None
        self._first_up: asyncio.Future[None] | None = None
        self._state = "connecting"
        self._last_error: str | None = None
        self._past = TrafficStats()
        self._gso_verdict = GsoVerdict()
        self._past_driver_drops = DropCounts()

    # life

    async def start(self) -> None:
        """Prepare the host and begin to connect. Raises what cannot be mended by trying again."""
        loop = asyncio.get_running_loop()
        self._first_up = loop.create_future()
        try:
            tunnel_request(self.config)  # what it says about the configuration is said before anything is done
            if self._use_tun:
                self._host = await ClientHost.open(self.config)
        except BaseException:
            self._logs.close()
            raise
        self._task = loop.create_task(self._run(), name="qtunnel client")

    async def wait_connected(self) -> None:
        """Wait for the first time the tunnel is up.

        Raises: AuthenticationError, ServerNotVerifiedError, NetworkOverlapError and others that trying again does
        not mend; with reconnect off also ConnectionFailedError.
        """
        assert self._first_up is not None
        await asyncio.shield(self._first_up)

    async def wait_closed(self) -> None:
        """Wait for the end. Raises the error that ended the tunnel, if close() did not."""
        assert self._task is not None
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def close(self) -> None:
        """End the tunnel and undo everything on the host. A second call does nothing."""
        if self._task is not None:
            self._task.cancel()
            await uninterrupted(_settled(self._task))

    # packets and facts

    def send(self, packets: list[bytes]) -> None:
        """Send inner IP packets; without a TUN only. While the tunnel is down they are dropped and counted."""
        if self._port is None:
            raise ConfigError("this tunnel has a TUN: packets are the kernel's", field="tun")
        if self._attempt is not None:
            self._attempt.driver.send_packets(packets)

    async def receive(self) -> list[bytes]:
        """Wait for inner IP packets; an empty list once the tunnel is closed."""
        if self._port is None:
            raise ConfigError("this tunnel has a TUN: packets are the kernel's", field="tun")
        return await self._port.receive()

    def events(self) -> AsyncIterator[TunnelEvent]:
        """Return an iterator over what happens from now on; it ends with the tunnel."""
        return self._events.subscribe()

    @property
    def addresses(self) -> tuple[IPInterface, ...]:
        """Our addresses inside; empty while the tunnel is down."""
        return () if self._attempt is None else self._attempt.core.addresses

    @property
    def inner_mtu(self) -> int:
        """The largest inner packet in bytes; 0 while the tunnel is down."""
        return 0 if self._attempt is None else self._attempt.core.inner_mtu

    def status(self) -> dict[str, Any]:
        """Return what `qtunnel status` shows."""
        now = monotonic()
        config = self.config
        result: dict[str, Any] = {
            "role": "client",
            "state": self._state,
            "server": address_text((config.server, config.port)),
            "server_name": config.server_name,
            "tun": None if self._host is None else self._host.tun.name,
            "addresses": [],
            "peer_routes": [],
            "inner_mtu": 0,
            "remote": None,
            "since_s": None,
            "rtt_ms": None,
            "drops": {},
        }
        drops = DropCounts(self._past.drops)
        drops.update(self._past_driver_drops)
        counters = dict(self._past.as_dict())
        if self._attempt is not None:
            core = self._attempt.core
            live = core.status(now)
            for name in ("packets_in", "packets_out", "bytes_in", "bytes_out", "icmp_sent"):
                counters[name] += live[name]
            result |= live | {"state": self._state}
            drops.update(core.stats.drops)
            drops.update(self._attempt.driver.drops)
            result["socket"] = socket_status(self._attempt.udp, self._gso_verdict)
            result["health"] = self._attempt.driver.status()
        result |= counters
        result["drops"] = drops_as_dict(drops)
        result["tun_offload"] = None if self._host is None else self._host.tun_status()
        result["warnings"] = [] if self._host is None else self._host.warnings
        result["last_error"] = self._last_error
        return result

    # the task

    async def _run(self) -> None:
        error: BaseException | None = None
        try:
            await self._keep_connected()
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._state = "closed"
            self._drop_attempt()
            self._logs.close()
            if self._port is not None:
                self._port.close()
            if self._host is not None:
                await uninterrupted(self._host.close())
            self._settle_first_up(error)
            self._events.close()

    def _settle_first_up(self, error: BaseException | None) -> None:
        future = self._first_up
        if future is None or future.done():
            return
        if isinstance(error, Exception):
            future.set_exception(error)
            future.exception()  # whoever waits gets it; nobody waiting is no fault
        else:
            future.cancel()

    async def _keep_connected(self) -> None:
        backoff = Backoff(
            shortest=self.config.reconnect_min, longest=self.config.reconnect_max, uniform=random.random
        )
        number = 0
        while True:
            number += 1
            up_at: float | None = None
            try:
                connected = await self._connect(number)
                up_at = monotonic()
                await self._come_up(connected)
                closed = await self._stay_up()
                reason, text = closed.reason, closed.text
                error: QTunnelError = closed_error(closed)
            except (AuthenticationError, ServerNotVerifiedError, NetworkOverlapError, TunLostError):
                raise
            except (ConnectionFailedError, SystemSetupError) as caught:
                if isinstance(caught, SystemSetupError) and number == 1:
                    raise
                error, reason, text = caught, CloseReason.NO_ANSWER, str(caught)
            self._drop_attempt()
            if isinstance(error, (AuthenticationError, ServerNotVerifiedError)):
                self._publish_down(reason, text, None)
                raise error
            if not self.config.reconnect or (isinstance(error, ConnectionFailedError) and error.is_final):
                self._publish_down(reason, text, None)
                raise error
            delay = backoff.next_delay(up_for=0.0 if up_at is None else monotonic() - up_at)
            self._state = "waiting to reconnect"
            self._publish_down(reason, text, delay)
            await asyncio.sleep(delay)

    async def _connect(self, number: int) -> Connected:
        self._state = "connecting"
        remotes = await self._server.addresses()
        if self._host is not None:
            self._host.check_tun()
            await self._host.set_servers(remotes)

        def start(remote: Address) -> Attempt:
            now = monotonic()
            self._events.publish(Connecting(time=now, remote=address_text(remote), attempt=number))
            return Attempt.start(
                self.config,
                self._settings(remote),
                remote,
                self._inbox.put_nowait,
                check_identifier=secrets.randbits(16),
            )

        attempt = await race(remotes, start)
        self._attempt = attempt
        attempt.request_tunnel()
        async with asyncio.timeout(UP_TIMEOUT):
            return await attempt.up

    async def _come_up(self, connected: Connected) -> None:
        attempt = self._attempt
        assert attempt is not None
        if self._host is not None:
            await self._host.set_addresses(connected.addresses)
            await self._host.set_mtu(connected.inner_mtu)
            await self._host.set_routes(attempt.core.routes)
            attempt.core.set_own_addresses(self._host.own_addresses)
        attempt.attach(tun=None if self._host is None else self._host.tun, port=self._port)
        self._state = "connected"
        self._last_error = None
        logger.info("connected to %s: %s", connected.remote, ", ".join(map(str, connected.addresses)))
        if self._first_up is not None and not self._first_up.done():
            self._first_up.set_result(None)
        self._events.publish(connected)

    async def _stay_up(self) -> Closed:
        """Handle the core's events until the connection ends. Raises: TunLostError."""
        host = self._host
        follow = None if host is None else asyncio.create_task(self._follow_host(host))
        if follow is not None:
            follow.add_done_callback(self._follow_ended)
        try:
            while True:
                event = await self._inbox.get()
                if isinstance(event, Closed):
                    return event
                if isinstance(event, BaseException):
                    raise event
                if host is not None:
                    match event:
                        case AddressesChanged():
                            await host.set_addresses(event.addresses)
                        case RoutesChanged():
                            await host.set_routes(event.routes)
                        case InnerMtuChanged():
                            await host.set_mtu(event.new)
                        case _:
                            pass
                self._events.publish(event)
        finally:
            if follow is not None:
                follow.cancel()
                await asyncio.wait({follow})

    async def _follow_host(self, host: ClientHost) -> None:
        async with contextlib.aclosing(host.changes()) as changes:
            async for _ in changes:
                host.check_tun()
                if self._attempt is not None:
                    self._attempt.core.set_own_addresses(host.own_addresses)

    def _follow_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._inbox.put_nowait(error)

    def _drop_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        stats = attempt.core.stats
        self._past.packets_in += stats.packets_in
        self._past.packets_out += stats.packets_out
        self._past.bytes_in += stats.bytes_in
        self._past.bytes_out += stats.bytes_out
        self._past.icmp_sent += stats.icmp_sent
        self._past.drops.update(stats.drops)
        self._past_driver_drops.update(attempt.driver.drops)
        attempt.close()
        while not self._inbox.empty():
            self._inbox.get_nowait()

    def _publish_down(self, reason: CloseReason, text: str, retry_in: float | None) -> None:
        self._last_error = text
        again = "" if retry_in is None else f"; trying again in {retry_in:.1f} s"
        logger.info("%s%s", text, again)
        now = monotonic()
        self._events.publish(Disconnected(time=now, reason=reason, text=text, retry_in=retry_in))

    def _settings(self, remote: Address) -> ConnectionSettings:
        config = self.config
        version = 6 if ":" in remote[0] else 4
        mtu = outgoing_mtu(remote)
        return ConnectionSettings(
            random_bytes=secrets.token_bytes,
            max_udp_payload=told_udp_payload(config.quic, mtu, version, f"the path to {address_text(remote)}"),
            path_mtu=path_mtu_settings(config.quic, config.lab, mtu),
            idle_timeout=config.quic.idle_timeout,
            keep_alive=config.quic.keep_alive,
            handshake_timeout=config.handshake_timeout,
            congestion_control=config.quic.congestion_control,
            gso_verdict=self._gso_verdict,
            qlog=self._logs.qlog,
            secrets=self._logs.secrets,
            server_name=config.server_name,
            fingerprint=config.fingerprint,
            cafile=config.ca_file,
        )


async def _settled(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # seen; whoever wants it asks wait_closed()
