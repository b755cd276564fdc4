"""Whole connections with the packet plane at both ends, for the tests of its parts."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from qtunnel.quic.events import PacketsReceived
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.packet_plane import PacketPlane
from qtunnel.quic.plane_connection import PlaneConnection
from tests.sim.quic_pair import QuicPair, client_settings, server_settings


def plane_of(connection: HttpConnection) -> PacketPlane:
    plane = cast(PlaneConnection, connection.quic).plane
    assert plane is not None
    return plane


def received(events: list[object]) -> list[bytes]:
    return [packet for event in events if isinstance(event, PacketsReceived) for packet in event.packets]


def open_pair(pair: QuicPair) -> tuple[int, HttpConnection]:
    stream_id = pair.open_tunnel()
    pair.run(1)
    assert pair.server_connection is not None
    return stream_id, pair.server_connection


def settings(**changes: object) -> dict[str, object]:
    return {
        "client": replace(client_settings(max_udp_payload=1472), **changes),  # type: ignore[arg-type]
        "server": replace(server_settings(max_udp_payload=1472), **changes),  # type: ignore[arg-type]
    }
