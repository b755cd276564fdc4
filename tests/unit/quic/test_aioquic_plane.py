"""What aioquic still does once the plane has its packets; the names themselves are checked by test_aioquic.py."""

from __future__ import annotations

from typing import Any, cast

from aioquic.quic.packet_builder import QuicDeliveryState

from qtunnel.quic._aioquic_plane import acknowledge, lose
from qtunnel.quic.plane_connection import PlaneConnection
from tests.sim.quic_pair import QuicPair


class FakePacket:
    def __init__(self, log: list[Any], name: str) -> None:
        self.delivery_handlers = [(lambda state, who: log.append((state, who)), (name,))]


def test_delivery_handlers_hear_of_each_packet() -> None:
    log: list[Any] = []
    acknowledge([FakePacket(log, "a"), FakePacket(log, "b")])
    lose([FakePacket(log, "c")])
    assert log == [
        (QuicDeliveryState.ACKED, "a"),
        (QuicDeliveryState.ACKED, "b"),
        (QuicDeliveryState.LOST, "c"),
    ]


def test_the_idle_timer_is_restarted_by_what_arrives_and_by_the_first_that_asks() -> None:
    pair = QuicPair()
    pair.connect()
    pair.run(1)
    quic = cast(PlaneConnection, pair.client.quic)
    quic.restart_idle_timer(2000.0, sent=False)
    first = quic._close_at
    quic.restart_idle_timer(2001.0, sent=True)
    second = quic._close_at
    quic.restart_idle_timer(2002.0, sent=True)
    assert first is not None
    assert second is not None
    assert first < second == quic._close_at


def test_control_frames_wait_only_after_something_was_given() -> None:
    pair = QuicPair()
    pair.connect()
    pair.run(2)
    quic = cast(PlaneConnection, pair.client.quic)
    assert not quic.is_control_waiting
    pair.client.ping()
    assert quic.is_control_waiting
    pair.run(1)
    assert not quic.is_control_waiting
