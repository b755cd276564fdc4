"""What status says of a socket, and the sysctl it names (A62)."""

from __future__ import annotations

import pytest

from qtunnel.aio.socket_status import buffer_advice, socket_status
from qtunnel.linux.udp import UdpSocket
from qtunnel.quic.segmented_sends import GsoVerdict

MIB = 1 << 20


@pytest.mark.parametrize(
    ("drops", "has", "wanted", "advice"),
    [
        (0, 4 * MIB, 4 * MIB, None),
        (0, 106496, None, None),
        (0, 106496, 4 * MIB, "sysctl -w net.core.rmem_max=4194304"),
        (7, 106496, 4 * MIB, "sysctl -w net.core.rmem_max=4194304"),
        (7, 4 * MIB, 4 * MIB, "sysctl -w net.core.rmem_max=8388608, and start with --receive-buffer 8388608"),
        (7, 106496, None, "sysctl -w net.core.rmem_max=212992, and start with --receive-buffer 212992"),
    ],
)
def test_a62_the_key_and_the_value_are_those_that_help(
    drops: int, has: int, wanted: int | None, advice: str | None
) -> None:
    assert buffer_advice(drops, has=has, wanted=wanted) == advice


def test_a_socket_without_traffic_has_no_shares() -> None:
    udp = UdpSocket.open(("127.0.0.1", 0), receive_buffer=4096)
    try:
        status = socket_status(udp, GsoVerdict())
    finally:
        udp.close()
    assert status["local"].startswith("127.0.0.1:")
    assert (status["gso_share"], status["gro_share"], status["receive_drops"]) == (None, None, 0)
    assert status["advice"] is None


def test_shares_are_of_datagrams() -> None:
    udp = UdpSocket.open(("127.0.0.1", 0))
    try:
        counters = udp.counters
        counters.datagrams_sent, counters.gso_datagrams = 40, 30
        counters.datagrams_received, counters.gro_datagrams = 10, 10
        status = socket_status(udp, GsoVerdict())
    finally:
        udp.close()
    assert (status["gso_share"], status["gro_share"]) == (0.75, 1.0)


def test_a58_segmenting_given_up_for_what_peers_lost_is_told_with_the_reason() -> None:
    udp = UdpSocket.open(("127.0.0.1", 0))
    try:
        before = socket_status(udp, GsoVerdict(hosts_needed=2, given_up=1, hosts={"192.0.2.1"}))
        after = socket_status(
            udp, GsoVerdict(hosts_needed=2, trials=3, given_up=2, hosts={"192.0.2.1", "192.0.2.2"})
        )
    finally:
        udp.close()
    assert (before["gso"], before["gso_off"]) == (True, None)
    assert (after["gso"], after["gso_off"]) == (False, "peers lost what was sent together")
    assert (after["gso_trials"], after["gso_given_up"]) == (3, 2)
