"""A server over its life: sockets, the TUN, users, leases, and what the host is told."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from ipaddress import ip_address
from time import monotonic
from typing import Any

from qtunnel.aio.driver import Driver, PacketPort
from qtunnel.aio.event_stream import EventStream
from qtunnel.aio.health import Health
from qtunnel.aio.logs import ConnectionLogs
from qtunnel.aio.path_mtu import path_mtu_settings, told_udp_payload
from qtunnel.aio.server_host import ServerHost
from qtunnel.aio.socket_status import socket_status
from qtunnel.aio.uninterrupted import uninterrupted
from qtunnel.burst import address_text
from qtunnel.config import IPAddress, ServerConfig, User
from qtunnel.drops import DropCounts
from qtunnel.errors import ConfigError, SystemSetupError
from qtunnel.linux.links import interface_mtu
from qtunnel.linux.udp import UdpSocket
from qtunnel.pmtud.sizes import MIN_UDP_PAYLOAD, inner_mtu
from qtunnel.quic.segmented_sends import GsoVerdict
from qtunnel.quic.settings import EndpointSettings
from qtunnel.state.identity import ServerIdentity
from qtunnel.tunnel.events import (
    PrefixesChanged,
    ResolveName,
    SessionClosed,
    SessionOpened,
    TunnelEvent,
)
from qtunnel.tunnel.server import ServerTunnel
from qtunnel.tunnel.stats import drops_as_dict

__all__ = ["TunnelServer"]

logger = logging.getLogger(__name__)

SaveLeases = Callable[[Mapping[str, int]], None]


class TunnelServer:
    """A running server. Made by qtunnel.serve().

    save_leases is called with all host numbers whenever a user got one, so that they survive a restart.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        identity: ServerIdentity,
        users: Iterable[User],
        leases: Mapping[str, int] | None,
        save_leases: SaveLeases | None,
        use_tun: bool,
    ) -> None:
        self.config = config
        self._identity = identity
        self._users = tuple(users)
        self._leases = dict(leases or {})
        self._save_leases = save_leases
        self._use_tun = use_tun
        self._logs = ConnectionLogs(config.quic)
        self._events = EventStream()
        self._inbox: asyncio.Queue[TunnelEvent] = asyncio.Queue()
        self._port = None if use_tun else PacketPort()
        self._host: ServerHost | None = None
        self._sockets: list[UdpSocket] = []
        self._interface_mtu = 1500
        self._gso_verdict = GsoVerdict(hosts_needed=2)
        self._udp_payload = MIN_UDP_PAYLOAD
        self._core: ServerTunnel | None = None
        self._driver: Driver | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[None] | None = None

    # life

    async def start(self) -> None:
        """Open the sockets and the TUN and begin to serve. Undoes everything when it fails."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        try:
            self._open_sockets()
            # Before there is a TUN, which would count as an interface of this host.
            self._interface_mtu = min(interface_mtu(ip_address(address)) for address in self.config.listen)
            self._udp_payload = told_udp_payload(self.config.quic, self._interface_mtu, 4, "the path")
            if self._use_tun:
                self._host = await ServerHost.open(self.config, tun_mtu=inner_mtu(self._udp_payload))
            self._core = ServerTunnel(
                self.config,
                self._settings(),
                users=self._users,
                leases=self._leases,
                own_addresses=() if self._host is None else self._host.own_addresses,
            )
            self._driver = Driver(
                self._core,
                sockets=self._sockets,
                on_events=self._on_events,
                tun=None if self._host is None else self._host.tun,
                port=self._port,
                health=Health(
                    sending_limit=self._core.sending_limit,
                    receive_drops=lambda: sum(each.drops() for each in self._sockets),
                ),
            )
            self._driver.start()
            self._start_task(self._handle_events(), "qtunnel server events")
            if self._host is not None:
                self._start_task(self._follow_host(self._host), "qtunnel server links")
        except BaseException:
            await uninterrupted(self._tear_down())
            raise
        logger.info("serving on %s", ", ".join(self.listening))

    async def wait_closed(self) -> None:
        """Wait until the server was closed. Raises the error that ended it, if close() did not."""
        assert self._ended is not None
        await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End every session, undo everything on the host. A second call does nothing."""
        if self._core is not None and self._driver is not None:
            self._core.shut_down(monotonic())
            self._driver.flush()
            while not self._inbox.empty():
                self._events.publish(self._inbox.get_nowait())
        await uninterrupted(self._tear_down())

    async def _tear_down(self) -> None:
        tasks, self._tasks = list(self._tasks), set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        for each in self._sockets:
            each.close()
        self._sockets = []
        if self._host is not None:
            await self._host.close()
            self._host = None
        if self._port is not None:
            self._port.close()
        self._logs.close()
        self._events.close()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    # users, packets, facts

    async def set_users(self, users: Iterable[User]) -> None:
        """Replace the users. Who is gone, or has a new token, loses the live tunnel at once."""
        self._users = tuple(users)
        if self._core is not None and self._driver is not None:
            self._core.set_users(self._users, monotonic())
            self._keep_leases()
            self._driver.flush()

    def send(self, packets: list[bytes]) -> None:
        """Send inner IP packets to the clients they are addressed to; without a TUN only."""
        if self._port is None:
            raise ConfigError("this server has a TUN: packets are the kernel's", field="tun")
        if self._driver is not None:
            self._driver.send_packets(packets)

    async def receive(self) -> list[bytes]:
        """Wait for inner IP packets of clients; an empty list once the server is closed."""
        if self._port is None:
            raise ConfigError("this server has a TUN: packets are the kernel's", field="tun")
        return await self._port.receive()

    def events(self) -> AsyncIterator[TunnelEvent]:
        """Return an iterator over what happens from now on; it ends with the server."""
        return self._events.subscribe()

    @property
    def listening(self) -> tuple[str, ...]:
        """The addresses served, with ports."""
        return tuple(address_text(each.local_address) for each in self._sockets)

    @property
    def port(self) -> int:
        """The UDP port served."""
        return int(self._sockets[0].local_address[1])

    def status(self) -> dict[str, Any]:
        """Return what `qtunnel status` shows."""
        config = self.config
        result: dict[str, Any] = {
            "role": "server",
            "listen": list(self.listening),
            "tun": None if self._host is None else self._host.tun.name,
            "inner_addresses": [str(pool) for pool in (config.pool4, config.pool6) if pool is not None],
            "tun_offload": None if self._host is None else self._host.tun_status(),
            "warnings": [] if self._host is None else self._host.warnings,
        }
        if self._core is not None:
            live = self._core.status(monotonic())
            if self._driver is not None:
                drops = DropCounts(self._driver.drops)
                live["drops"] = _add(live["drops"], drops_as_dict(drops))
                result["health"] = self._driver.status()
            result |= live
        result["sockets"] = [socket_status(each, self._gso_verdict) for each in self._sockets]
        return result

    # inside

    def _open_sockets(self) -> None:
        quic = self.config.quic
        refused: list[SystemSetupError] = []
        port = self.config.port
        for address in self.config.listen:
            try:
                each = UdpSocket.open(
                    (address, port),
                    gso=quic.gso,
                    gro=quic.gro,
                    receive_buffer=self.config.lab.receive_buffer(quic.receive_buffer),
                    send_buffer=quic.send_buffer,
                )
            except SystemSetupError as error:
                if address == "::" and "0.0.0.0" in self.config.listen and not _has_ipv6():
                    logger.warning("no IPv6 on this host: serving IPv4 only")
                    continue
                refused.append(error)
                continue
            self._sockets.append(each)
            port = port or int(each.local_address[1])
        if refused:
            problems = dict.fromkeys(error.problem for error in refused)
            remedies = dict.fromkeys(error.remedy for error in refused if error.remedy)
            raise SystemSetupError("; ".join(problems), remedy="; ".join(remedies) or None)

    def _settings(self) -> EndpointSettings:
        config = self.config
        secret = self._identity.secret
        return EndpointSettings(
            random_bytes=secrets.token_bytes,
            max_udp_payload=self._udp_payload,
            path_mtu=path_mtu_settings(config.quic, config.lab, self._interface_mtu),
            idle_timeout=config.quic.idle_timeout,
            congestion_control=config.quic.congestion_control,
            gso_verdict=self._gso_verdict,
            qlog=self._logs.qlog,
            secrets=self._logs.secrets,
            certificate=self._identity.certificate_pem,
            private_key=self._identity.private_key_pem,
            stateless_reset_key=_derive(secret, "stateless reset"),
            retry_key=_derive(secret, "retry token"),
            max_sessions=config.max_sessions,
            max_handshakes=config.max_handshakes,
            retry_threshold=config.retry_threshold,
        )

    def _on_events(self) -> None:
        core = self._core
        if core is not None:
            while (event := core.next_event()) is not None:
                self._inbox.put_nowait(event)

    async def _handle_events(self) -> None:
        while True:
            event = await self._inbox.get()
            if isinstance(event, ResolveName):
                self._start_task(self._resolve(event), "qtunnel resolve", is_vital=False)
                continue
            if isinstance(event, SessionOpened):
                logger.info("%s connected from %s", event.user, event.remote)
                self._keep_leases()
            elif isinstance(event, SessionClosed):
                logger.info("%s from %s ended: %s", event.user, event.remote, event.text)
            if self._host is not None and isinstance(event, (PrefixesChanged, SessionClosed)):
                assert self._core is not None
                await self._host.set_client_prefixes(self._core.prefixes_in_use())
            self._events.publish(event)

    def _fail(self, error: BaseException) -> None:
        logger.error("the server ends: %s", error)
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    async def _follow_host(self, host: ServerHost) -> None:
        async with contextlib.aclosing(host.changes()) as changes:
            async for _ in changes:
                host.check_tun()
                if self._core is not None:
                    self._core.set_own_addresses(host.own_addresses)

    async def _resolve(self, event: ResolveName) -> None:
        addresses: list[IPAddress] = []
        try:
            found = await asyncio.get_running_loop().getaddrinfo(event.name, None, type=socket.SOCK_DGRAM)
            addresses = list(dict.fromkeys(ip_address(item[4][0]) for item in found))
        except (OSError, UnicodeError, ValueError) as error:
            logger.info("cannot resolve %s for a client: %s", event.name, error)
        if self._core is not None and self._driver is not None:
            self._core.name_resolved(event.number, addresses, monotonic())
            self._driver.flush()

    def _keep_leases(self) -> None:
        if self._save_leases is not None and self._core is not None:
            self._save_leases(self._core.pool.leases())

    def _start_task(self, coroutine: Any, name: str, *, is_vital: bool = True) -> None:
        """Run it until it ends or the server does. is_vital: the server cannot go on when it ends by an error."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._task_ended, is_vital))

    def _task_ended(self, is_vital: bool, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if is_vital:
            self._fail(error)
        else:
            logger.error("%s failed", task.get_name(), exc_info=error)


def _derive(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, purpose.encode(), hashlib.sha256)


def _add(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
