"""Measures the path MTU to any server of HTTP/3, by probing: no tunnel, no root, no ICMP (RFC 8899)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from ipaddress import ip_address
from time import monotonic
from typing import Any, Final

from qtunnel.aio.driver import Driver
from qtunnel.aio.resolve import ServerName
from qtunnel.burst import Address, Burst, Received, Transmit, address_text
from qtunnel.errors import ConnectionFailedError, LocalProtocolError
from qtunnel.linux.links import outgoing_mtu
from qtunnel.linux.udp import UdpSocket
from qtunnel.packet_run import Packets
from qtunnel.pmtud.sizes import link_mtu, udp_payload
from qtunnel.quic.events import ConnectionClosed, HttpEvent
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.settings import ConnectionSettings, PathMtuSettings

__all__ = ["MtuMeasurement", "MtuStep", "measure_path_mtu"]

PATIENCE: Final = 10.0
"""Seconds for handshake and search together; a search takes five round trips."""


@dataclass(frozen=True, slots=True)
class MtuStep:
    """One thing that happened in the search. at: seconds since it began. mtu: known to be carried by then."""

    at: float
    mtu: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MtuMeasurement:
    """What one direction of a path carries: from here to the server. Sizes are link MTUs, bytes of IP packets.

    mtu: the largest that arrived. limited_by: "path", if one byte more does not get through; "peer", if the server
    takes no more (its max_udp_payload_size); "interface", if the local one does not. is_complete: False if the
    time was over before the search was. round_trip: smoothed, seconds, without the server's acknowledgement delay.
    round_trips: how many the search took, acknowledgement delays included.
    """

    remote: str
    version: int
    mtu: int
    limited_by: str
    is_complete: bool
    round_trip: float
    round_trips: float
    probes: int
    probe_bytes: int
    probes_lost: int
    steps: tuple[MtuStep, ...]


class _Probing:
    """A connection that carries nothing, as the driver's core."""

    def __init__(self, connection: HttpConnection, remote: Address) -> None:
        self.connection = connection
        self.closed: ConnectionClosed | None = None
        self._remote = remote

    def receive_from_tun(self, burst: Burst) -> None:
        """There is no TUN."""

    def receive_from_udp(self, received: list[Received], now: float) -> None:
        self.connection.receive_from_udp(received, now)

    def handle_timer(self, now: float) -> None:
        self.connection.handle_timer(now)

    def get_timer(self) -> float | None:
        return self.connection.get_timer()

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        return self.connection.datagrams_to_send(now)

    def packets_to_write(self) -> list[Packets]:
        return []

    def next_event(self) -> HttpEvent | None:
        event = self.connection.next_event()
        if isinstance(event, ConnectionClosed):
            self.closed = event
        return event

    def has_room_for_read(self) -> bool:
        return False

    def on_stall(self, duration: float, now: float) -> None:
        self.connection.on_stall(duration, now)

    def on_refused(self, transmit: Transmit, now: float) -> None:
        self.connection.on_refused(transmit.segment_size or len(transmit.data), now)

    def on_packet_too_big(self, remote: Address, mtu: int, quoted: bytes, now: float) -> None:
        """Take no hint: what is measured is what arrives."""


async def measure_path_mtu(
    host: str,
    port: int = 443,
    *,
    version: int | None = None,
    server_name: str | None = None,
    verify: bool = False,
    patience: float = PATIENCE,
) -> list[MtuMeasurement]:
    """Measure the path MTU to a server of HTTP/3, one result for each IP version that it has.

    version: 4 or 6, for one alone. server_name: for the handshake; None: host, if that is a name. verify: whether
    the certificate has to be good; nothing but the handshake and probes is sent either way. patience: seconds for
    each.

    Raises:
        ConnectionFailedError: the name has no such address, or no address of it answers.
    """
    addresses = [
        address
        for address in await ServerName(host, port).addresses()
        if version in (None, 6 if ":" in address[0] else 4)
    ]
    if not addresses:
        raise ConnectionFailedError(f"{host} has no IPv{version} address")
    name = server_name if server_name is not None else ("" if _is_address(host) else host)
    results: list[MtuMeasurement] = []
    failures: list[str] = []
    done: set[int] = set()
    for remote in addresses:
        family = 6 if ":" in remote[0] else 4
        if family in done:
            continue
        try:
            results.append(await _measure(remote, family, name, verify=verify, patience=patience))
            done.add(family)
        except ConnectionFailedError as error:
            failures.append(str(error))
    if not results:
        raise ConnectionFailedError("; ".join(dict.fromkeys(failures)))
    return results


async def _measure(remote: Address, version: int, name: str, *, verify: bool, patience: float) -> MtuMeasurement:
    interface = outgoing_mtu(remote)
    settings = ConnectionSettings(
        random_bytes=secrets.token_bytes,
        max_udp_payload=min(udp_payload(interface, version), 65527),
        path_mtu=PathMtuSettings(interface_mtu=interface),
        handshake_timeout=patience,
        server_name=name,
        verify=verify,
    )
    udp = UdpSocket.open(("::", 0) if version == 6 else ("0.0.0.0", 0))
    changed = asyncio.Event()
    try:
        core = _Probing(HttpConnection.client(settings, remote, monotonic()), remote)

        def on_events() -> None:
            while core.next_event() is not None:
                pass
            changed.set()

        driver = Driver(core, sockets=[udp], on_events=on_events)
        driver.start()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while core.closed is None and not _is_complete(core.connection):
                        changed.clear()
                        await changed.wait()
            return _result(core, remote, version)
        finally:
            with contextlib.suppress(LocalProtocolError):
                core.connection.close()
            driver.flush()
            driver.close()
    finally:
        udp.close()


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_complete(connection: HttpConnection) -> bool:
    return connection.path_mtu is not None and connection.is_size_settled


def _result(core: _Probing, remote: Address, version: int) -> MtuMeasurement:
    connection = core.connection
    path_mtu = connection.path_mtu
    if path_mtu is None:
        why = "no answer" if core.closed is None else core.closed.reason
        raise ConnectionFailedError(f"no QUIC connection to {address_text(remote)}: {why}")
    discovery = path_mtu.discovery
    steps = discovery.story
    began = steps[0].time if steps else 0.0
    took = steps[-1].time - began if steps else 0.0
    status: dict[str, Any] = connection.path_mtu_status(monotonic())
    return MtuMeasurement(
        remote=address_text(remote),
        version=version,
        mtu=link_mtu(discovery.size, version),
        limited_by=path_mtu.config.limited_by if discovery.size >= path_mtu.config.most else "path",
        is_complete=connection.is_size_settled,
        round_trip=connection.stats().smoothed_rtt,
        round_trips=round(took / connection.round_trip, 1) if connection.round_trip else 0.0,
        probes=status["probes"],
        probe_bytes=status["probe_bytes"],
        probes_lost=status["probes_lost"],
        steps=tuple(MtuStep(each.time - began, link_mtu(each.size, version), each.text) for each in steps),
    )
