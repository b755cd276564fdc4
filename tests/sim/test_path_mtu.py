"""Path MTU discovery in whole tunnels: found exactly, lowered when the path shrinks in silence, told to all."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from qtunnel.drops import DropReason
from qtunnel.pmtud.sizes import inner_mtu, link_mtu
from qtunnel.quic.settings import PathMtuSettings
from qtunnel.state.identity import ServerIdentity
from qtunnel.tunnel.events import InnerMtuChanged, Ipv6Refused
from tests.sim.link import Conditions, udp_payload
from tests.sim.packets import number_of, packet4, packet6
from tests.sim.pair import SimHost
from tests.sim.world import (
    BEHIND4,
    BEHIND6,
    POOL4,
    SERVER4,
    SERVER6,
    World,
    address4,
    address6,
    client_of,
    events_of,
    server_of,
)

DELAY = 0.02
RTT = 2 * DELAY
ACK_DELAY = 0.025


def narrow(mtu: int, version: int = 4) -> Conditions:
    return Conditions(delay=DELAY, size_limit=udp_payload(mtu, version))


def make_world(identity: ServerIdentity, seed: int, **more: object) -> World:
    settings = {"path_mtu": PathMtuSettings(**more)}  # type: ignore[arg-type]  # its fields
    return World(seed=seed, identity=identity, udp_payload=udp_payload(1500), server_settings=settings)


def add_client(world: World, up: Conditions, down: Conditions, **more: object) -> SimHost:
    settings = {"path_mtu": PathMtuSettings()}
    return world.add_client(up=up, down=down, settings=settings, **more)  # type: ignore[arg-type]


def sizes(world: World, client: SimHost) -> tuple[int, int]:
    """Return the link MTUs found, up and down."""
    up = client_of(client).status(world.now)["path_mtu"]
    (session,) = server_of(world).status(world.now)["sessions"]
    return up, session["path_mtu"]


@pytest.mark.parametrize(("up", "down"), [(1500, 1500), (1499, 1228), (1229, 1400), (1280, 1492), (1337, 1451)])
def test_dpl_each_direction_of_a_path_is_found_to_the_byte(
    identity: ServerIdentity, seed: int, up: int, down: int
) -> None:
    world = make_world(identity, seed)
    client = add_client(world, narrow(up), narrow(down))
    world.wait_up(client)
    world.network.run_for(2.0)
    assert sizes(world, client) == (up, down)
    assert client_of(client).inner_mtu == inner_mtu(udp_payload(up))
    assert server_of(world).sessions[0].stream.mtu == inner_mtu(udp_payload(down))


@pytest.mark.parametrize("mtu", [1280, 1281, 1400, 1500])
def test_a_path_of_ipv6_is_found_to_the_byte(identity: ServerIdentity, seed: int, mtu: int) -> None:
    world = make_world(identity, seed)
    client = add_client(world, narrow(mtu, 6), narrow(mtu, 6), remote=SERVER6)
    world.wait_up(client)
    world.network.run_for(2.0)
    assert sizes(world, client) == (mtu, mtu)


def test_limits_by_configuration_hold(identity: ServerIdentity, seed: int) -> None:
    world = make_world(identity, seed, ceiling=1400, floor=1300)
    client = add_client(world, narrow(1500), narrow(1500))
    world.wait_up(client)
    assert sizes(world, client)[1] >= 1300
    world.network.run_for(2.0)
    assert sizes(world, client) == (1500, 1400)


def stream4(client: SimHost, first: int, count: int, size: int) -> list[bytes]:
    return [packet4(address4(client), BEHIND4, first + number, size=size) for number in range(count)]


@pytest.mark.parametrize("congestion_control", ["cubic", "bbr"])
@pytest.mark.parametrize(("before", "after"), [(1500, 1400), (1450, 1400), (1500, 1496), (1500, 1228)])
def test_a_path_that_shrinks_in_silence_is_found_and_every_sender_told(
    identity: ServerIdentity, seed: int, before: int, after: int, congestion_control: str
) -> None:
    world = make_world(identity, seed)
    client = add_client(world, narrow(before), narrow(before))
    world.wait_up(client)
    world.network.run_for(2.0)
    full = client_of(client).inner_mtu
    client.written.clear()
    world.server.written.clear()
    number = 0
    shrunk_at = found_at = None
    for step in range(400):
        if step == 100:
            client.up.conditions.size_limit = udp_payload(after)
            shrunk_at = world.now
        size = client_of(client).inner_mtu
        if size < full and found_at is None:
            found_at = world.now
        client.write_to_tun(stream4(client, number, 2, size))
        number += 2
        world.network.run_for(0.005)
    assert shrunk_at is not None
    assert found_at is not None
    assert found_at - shrunk_at <= 8 * (RTT + ACK_DELAY) + 2 * (3 * RTT + ACK_DELAY)
    assert sizes(world, client) == (after, before)
    # The sender inside was told, by our own address, what fits; what it sent then arrives.
    errors = [packet for packet in client.written if packet[9] == 1 and packet[20:22] == b"\x03\x04"]
    assert errors
    told = {int.from_bytes(packet[26:28]) for packet in errors}
    assert inner_mtu(udp_payload(after)) - 24 <= min(told) <= max(told) <= inner_mtu(udp_payload(after))
    assert len(world.server.written[-1]) == inner_mtu(udp_payload(after))
    assert events_of(client, InnerMtuChanged)[-1].new == inner_mtu(udp_payload(after))
    last = [number_of(packet) for packet in world.server.written[-100:]]
    assert last == list(range(last[0], last[0] + 100))


def test_packets_that_waited_when_the_path_shrank_are_answered_or_fragmented_not_lost_in_silence(
    identity: ServerIdentity, seed: int
) -> None:
    world = make_world(identity, seed)
    client = add_client(world, Conditions(delay=DELAY, rate_bps=2e6), Conditions(delay=DELAY))
    world.wait_up(client)
    world.network.run_for(2.0)
    full = client_of(client).inner_mtu
    said_before = client_of(client).status(world.now)["icmp_sent"]
    client.written.clear()
    client.up.conditions.size_limit = udp_payload(1400)
    small = inner_mtu(udp_payload(1400))
    sent = 0
    while client_of(client).inner_mtu == full:
        client.write_to_tun(
            [packet4(address4(client), BEHIND4, sent + at, size=full, df=bool(at % 2)) for at in range(4)]
        )
        sent += 4
        world.network.run_for(0.01)
        assert sent < 2000
    world.network.run_for(1.0)
    status = client_of(client).status(world.now)
    lengths = {len(packet) for packet in world.server.written}
    assert lengths - {full}
    assert max(lengths - {full}) <= small
    answered = sum(packet[9] == 1 for packet in client.written)
    assert answered == status["icmp_sent"] - said_before > 0
    assert status["drops"].get(str(DropReason.DATAGRAM_TOO_LARGE), 0) == 0
    assert status["packets_out"] > 0


def test_ipv6_goes_on_in_capsules_where_the_path_carries_less_than_1280_inside(
    identity: ServerIdentity, seed: int
) -> None:
    world = make_world(identity, seed)
    client = add_client(world, narrow(1290), narrow(1290))
    world.wait_up(client)
    world.network.run_for(5.0)
    assert client_of(client).inner_mtu < 1280
    assert client_of(client).status(world.now)["ipv6"] == "ok"
    assert events_of(world.server, Ipv6Refused) == events_of(client, Ipv6Refused) == []
    six = address6(client)
    client.write_to_tun([packet6(six, BEHIND6, number, size=1280) for number in range(20)])
    world.server.write_to_tun([packet6(BEHIND6, six, number, size=1280) for number in range(20)])
    world.network.run_for(2.0)
    assert [number_of(packet) for packet in world.server.written] == list(range(20))
    assert [number_of(packet) for packet in client.written] == list(range(20))


@pytest.mark.parametrize("mtu", [1228, 1300, 1400, 1500])
def test_every_size_arrives_or_is_fragmented_or_is_answered(identity: ServerIdentity, seed: int, mtu: int) -> None:
    """From 40 to 1500 bytes, with DF or without, IPv4 and IPv6, up and down: never lost in silence."""
    world = make_world(identity, seed)
    client = add_client(world, narrow(mtu), narrow(mtu))
    world.wait_up(client)
    world.network.run_for(5.0)
    inner = client_of(client).inner_mtu
    four, six = address4(client), address6(client)
    for source, sink, home4, away4, home6, away6 in (
        (client, world.server, four, BEHIND4, six, BEHIND6),
        (world.server, client, BEHIND4, four, BEHIND6, six),
    ):
        for size in range(50, 1501, 1):
            check_size(world, source, sink, inner, size, (home4, away4), (home6, away6))


def check_size(
    world: World,
    source: SimHost,
    sink: SimHost,
    inner: int,
    size: int,
    fours: tuple[IPv4Address, IPv4Address],
    sixes: tuple[IPv6Address, IPv6Address],
) -> None:
    source.written.clear()
    sink.written.clear()
    source.write_to_tun(
        [
            packet4(*fours, 1, size=size),
            packet4(*fours, 2, size=size, df=False),
            packet6(*sixes, 3, size=max(size, 60)),
        ]
    )
    world.network.run_for(0.1)
    fits4, fits6 = size <= inner, max(size, 60) <= max(inner, 1280)
    four = [packet for packet in sink.written if packet[0] >> 4 == 4]
    six = [packet for packet in sink.written if packet[0] >> 4 == 6]
    errors4 = [packet for packet in source.written if packet[0] >> 4 == 4]
    errors6 = [packet for packet in source.written if packet[0] >> 4 == 6]
    assert len(four) == (2 if fits4 else -(-(size - 20) // ((inner - 20) // 8 * 8))), size
    assert len(errors4) == (0 if fits4 else 1), size
    assert [int.from_bytes(packet[26:28]) for packet in errors4] == [inner] * len(errors4)
    assert (len(six), len(errors6)) == ((1, 0) if fits6 else (0, 1)), size
    assert [int.from_bytes(packet[44:48]) for packet in errors6] == [max(inner, 1280)] * len(errors6)
    assert sum(len(packet) - 20 for packet in four) == ((size - 20) * (2 if fits4 else 1)), size


def test_two_clients_have_a_size_each(identity: ServerIdentity, seed: int) -> None:
    world = make_world(identity, seed)
    small = add_client(world, narrow(1400), narrow(1400))
    large = add_client(world, narrow(1500), narrow(1500), user="bob")
    world.wait_up(small, large)
    world.network.run_for(2.0)
    for host, mtu in ((small, 1400), (large, 1500)):
        world.server.written.clear()
        inner = inner_mtu(udp_payload(mtu))
        world.server.write_to_tun([packet4(BEHIND4, address4(host), 1, size=inner + 1)])
        world.network.run_for(0.1)
        (answer,) = world.server.written
        assert answer[12:16] == POOL4.ip.packed
        assert int.from_bytes(answer[26:28]) == inner


def test_probing_does_not_hold_up_the_first_packet(identity: ServerIdentity, seed: int) -> None:
    world = make_world(identity, seed)
    client = add_client(world, narrow(1500), narrow(1500))
    world.wait_up(client)
    client.write_to_tun(stream4(client, 0, 1, 100))
    world.network.run_for(DELAY + 0.01)
    assert [number_of(packet) for packet in world.server.written] == [0]


def test_the_story_names_what_was_found_and_why(identity: ServerIdentity, seed: int) -> None:
    world = make_world(identity, seed)
    client = add_client(world, narrow(1492), narrow(1500), remote=SERVER4)
    world.wait_up(client)
    world.network.run_for(3.0)
    path = client_of(client).status(world.now)["path"]
    assert path["state"] == "search-complete"
    assert path["mtu"] == link_mtu(udp_payload(1492), 4) == 1492
    assert path["probes"] > path["probes_lost"] > 0
    assert any("link MTU 1492 is the end" in step["text"] for step in path["why"])
