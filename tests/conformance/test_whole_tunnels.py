"""Requirements that only a whole tunnel can be held to, client and server in a simulated network (tests/sim)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING

import pytest

from qtunnel.burst import Address
from qtunnel.drops import DropReason
from qtunnel.masque.address_capsules import decode_address_assign, decode_address_request
from qtunnel.masque.capsule import Capsule, CapsuleParser, CapsuleType
from qtunnel.masque.session import Session
from qtunnel.quic.events import HttpEvent, SettingsReceived
from qtunnel.tunnel.client import ClientState
from qtunnel.tunnel.events import (
    CloseReason,
    PrefixesChanged,
    RequestRefused,
    RoutesChanged,
    ServerVerified,
    SessionClosed,
    SessionOpened,
)
from tests.sim.link import Conditions, Fate, udp_payload
from tests.sim.packets import number_of, packet4, packet6
from tests.sim.world import (
    BEHIND4,
    BEHIND6,
    SERVER4,
    World,
    address4,
    address6,
    client_of,
    events_of,
    make_user,
    server_of,
)

if TYPE_CHECKING:
    from qtunnel.state.identity import ServerIdentity
    from tests.sim.pair import SimHost

LONG_HEADER = 0x80
INITIAL, ZERO_RTT = 0xC0, 0xD0


@dataclass(frozen=True, slots=True)
class Heard:
    """One datagram on its way."""

    time: float
    sender: str
    remote: Address
    datagram: bytes

    @property
    def size(self) -> int:
        return len(self.datagram)

    @property
    def kind(self) -> int:
        """The form and type bits of its first byte (RFC 9000 §17)."""
        return self.datagram[0] & 0xF0


def overhear(world: World) -> list[Heard]:
    """Return a list that grows by everything sent from now on."""
    heard: list[Heard] = []
    carry = world.network.carry

    def listen(sender: SimHost, datagram: bytes, remote: Address, local: str | None) -> None:
        heard.append(Heard(world.now, sender.name, remote, datagram))
        carry(sender, datagram, remote, local)

    world.network.carry = listen  # type: ignore[method-assign]
    return heard


def bulk(client: SimHost, count: int, size: int = 1200) -> list[bytes]:
    return [packet4(address4(client), BEHIND4, number, size=size) for number in range(count)]


# RFC 9484


def test_cip_16_addresses_and_routes_last_as_long_as_the_idle_stream(identity: ServerIdentity, seed: int) -> None:
    world = World(seed=seed, identity=identity)
    alice = world.add_client("alice")
    world.wait_up(alice)
    address, routes = address4(alice), client_of(alice).routes
    world.network.run_for(600.0)
    bob = world.add_client("bob")
    world.wait_up(bob)
    assert address4(bob) != address == address4(alice)
    assert client_of(alice).routes == routes != ()
    world.server.write_to_tun([packet4(BEHIND4, address, 1)])
    world.network.run_for(0.5)
    assert [number_of(packet) for packet in alice.written] == [1]


def test_cip_17_a_tunnel_ended_for_inactivity_takes_its_stream_and_connection_along(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client()
    world.wait_up(client)
    client.up.conditions.up = False
    world.network.run_until(lambda: events_of(world.server, SessionClosed), timeout=60)
    assert events_of(world.server, SessionClosed)[0].reason is CloseReason.IDLE
    assert server_of(world).status(world.now)["connections"] == 0
    world.server.write_to_tun([packet4(BEHIND4, address4(client), 1)])
    assert server_of(world).stats.drops[DropReason.NO_ROUTE] == 1
    # Reachable again, the client hears that its connection is no more.
    client.up.conditions.up = True
    world.wait_closed(client, 30.0)


def test_cip_23_client_sends_no_request_before_the_servers_settings_offer_extended_connect(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client()
    # The SETTINGS share a packet with the handshake, so no link can hold them back: their event is.
    connection = client_of(client)._connection
    next_event = connection.next_event
    held: list[SettingsReceived] = []

    def without_settings() -> HttpEvent | None:
        event = next_event()
        if isinstance(event, SettingsReceived):
            held.append(event)
            event = next_event()
        return event

    connection.next_event = without_settings  # type: ignore[method-assign]
    world.network.run_for(3.0)
    assert events_of(client, ServerVerified)
    assert events_of(world.server, SessionOpened) == events_of(world.server, RequestRefused) == []
    assert [event.extended_connect for event in held] == [True]
    connection.next_event = lambda: held.pop() if held else next_event()  # type: ignore[method-assign]
    client_of(client).receive_from_udp([], world.now)
    client.flush()
    world.wait_up(client)


def test_cip_40_a_client_sends_from_any_address_of_its_permitted_network_and_is_reached_there(
    identity: ServerIdentity, seed: int
) -> None:
    network = IPv4Network("198.18.7.0/29")
    world = World(seed=seed, identity=identity, users=(make_user("alice", prefixes=(network,)),))
    client = world.add_client(advertise=(network,))
    world.wait_up(client)
    world.network.run_for(0.5)
    assert events_of(world.server, PrefixesChanged)[0].prefixes == (network,)
    hosts = list(network.hosts())
    client.write_to_tun([packet4(host, BEHIND4, number) for number, host in enumerate(hosts)])
    world.server.write_to_tun([packet4(BEHIND4, host, number) for number, host in enumerate(hosts)])
    world.network.run_for(0.5)
    numbers = list(range(len(hosts)))
    assert [number_of(packet) for packet in world.server.written] == numbers
    assert [number_of(packet) for packet in client.written] == numbers


def test_cip_41_cip_42_client_asks_and_server_assigns_unasked_and_the_answers_agree(
    identity: ServerIdentity, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Capsule] = []  # by both ends
    parsers: dict[Session, CapsuleParser] = {}
    receive = Session.receive_stream_data

    def listen(session: Session, data: bytes, end: bool = False) -> None:
        heard.extend(parsers.setdefault(session, CapsuleParser()).receive_data(data))
        receive(session, data, end)

    monkeypatch.setattr(Session, "receive_stream_data", listen)
    world = World(seed=seed, identity=identity)
    client = world.add_client()
    world.wait_up(client)
    world.network.run_for(1.0)
    opened = events_of(world.server, SessionOpened)[0]
    assert tuple(each.ip for each in client_of(client).addresses) == opened.addresses
    values = {kind: [each.value for each in heard if each.type is kind] for kind in CapsuleType}
    (wishes,) = map(decode_address_request, values[CapsuleType.ADDRESS_REQUEST])
    assert [str(wish.prefix) for wish in wishes] == ["0.0.0.0/32", "::/128"]
    unasked, asked = (
        decode_address_assign(each.value) for each in heard if each.type is CapsuleType.ADDRESS_ASSIGN
    )
    assert [entry.request_id for entry in unasked] == [0, 0]
    assert [entry.request_id for entry in asked] == [wish.request_id for wish in wishes]
    assert [entry.prefix for entry in unasked] == [entry.prefix for entry in asked]
    assert tuple(entry.prefix.ip for entry in asked) == opened.addresses


def test_cip_66_spoofed_and_broken_packets_are_no_reason_to_end_the_tunnel(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client(advertise=(IPv4Network("203.0.113.0/24"),))  # believed by the client alone
    world.wait_up(client)
    client.write_to_tun([packet4(IPv4Address("203.0.113.1"), BEHIND4, 1), b"", b"\x45", bytes(40), b"\x60" * 50])
    client.write_to_tun([packet4(address4(client), BEHIND4, 2)])
    world.network.run_for(1.0)
    assert [number_of(packet) for packet in world.server.written] == [2]
    assert client_of(client).state is ClientState.UP


def test_cip_79_qdg_08_a_packet_leaves_and_is_delivered_in_the_wake_up_it_came_in(
    identity: ServerIdentity, seed: int
) -> None:
    delay = 0.05
    world = World(seed=seed, identity=identity)
    client = world.add_client(up=Conditions(delay=delay), down=Conditions(delay=delay))
    world.wait_up(client)
    world.network.run_for(2.0)
    for number in range(20):
        sent_at = world.now
        client.write_to_tun([packet4(address4(client), BEHIND4, number)])
        world.network.run_until(lambda number=number: len(world.server.written) > number, timeout=1)
        assert world.now == pytest.approx(sent_at + delay, abs=1e-6)


@pytest.mark.parametrize("mtu", [1300, 1400, 1500])
def test_cip_82_a_packet_too_big_is_answered_with_the_true_size_and_no_capsule(
    mtu: int, identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity, udp_payload=udp_payload(mtu))
    client = world.add_client()
    world.wait_up(client)
    world.network.run_for(2.0)
    heard = overhear(world)
    inner = client_of(client).inner_mtu
    client.write_to_tun(bulk(client, 1, size=inner + 1))
    assert int.from_bytes(client.written[0][26:28]) == inner
    assert heard == []
    client.write_to_tun(bulk(client, 1, size=inner))
    assert [each.size for each in heard] == [udp_payload(mtu)]


def test_cip_87_h3_11_only_a_known_token_gets_a_tunnel_and_only_the_right_server_gets_the_token(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    stranger = world.add_client(token="nobodys-token-0123456789")
    assert world.wait_closed(stranger, 3.0).reason is CloseReason.AUTHENTICATION
    deceived = world.add_client(fingerprint="f" * 64)
    assert world.wait_closed(deceived, 3.0).reason is CloseReason.NOT_VERIFIED
    assert [event.status for event in events_of(world.server, RequestRefused)] == [401]
    assert events_of(world.server, SessionOpened) == []


# RFC 9221


def test_qdg_06_a_server_without_datagram_is_refused_with_the_reason(identity: ServerIdentity, seed: int) -> None:
    world = World(seed=seed, identity=identity, server_settings={"max_datagram_frame_size": 0})
    closed = world.wait_closed(world.add_client(), 5.0)
    assert closed.reason is CloseReason.UNSUPPORTED
    assert "atagram" in closed.text


def test_qdg_11_a_packet_lost_on_the_way_is_not_sent_again(identity: ServerIdentity, seed: int) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client()
    world.wait_up(client)
    world.network.run_for(2.0)
    client.up.conditions.loss = 1.0
    client.write_to_tun(bulk(client, 1))
    world.network.run_for(0.005)
    client.up.conditions.loss = 0.0
    world.network.run_for(10.0)
    assert world.server.written == []
    assert client.up.counts[Fate.LOST] == 1


def test_qdg_12_a_full_queue_drops_counts_and_stays_bounded(identity: ServerIdentity, seed: int) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client()
    world.wait_up(client)
    world.network.run_for(2.0)
    count = 5000
    client.write_to_tun(bulk(client, count))
    world.network.run_for(5.0)
    drops = client_of(client).stats.drops
    assert drops[DropReason.QUEUE_FULL] > 0
    arrived = [number_of(packet) for packet in world.server.written]
    assert arrived == sorted(set(arrived))
    assert len(arrived) + sum(drops.values()) == count
    assert drops.keys() <= {DropReason.QUEUE_FULL, DropReason.QUEUE_TOO_OLD}


def test_qdg_13_datagrams_wait_for_the_congestion_window(identity: ServerIdentity, seed: int) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client(up=Conditions(delay=0.1), down=Conditions(delay=0.1))
    world.wait_up(client)
    world.network.run_for(2.0)
    heard = overhear(world)
    began = world.now
    client.write_to_tun(bulk(client, 200))
    world.network.run_for(0.19)  # no acknowledgement can be back yet
    in_flight = sum(each.size for each in heard if each.sender == client.name)
    assert 2 * 1200 <= in_flight <= 20 * world.udp_payload
    world.network.run_for(3.0)
    assert len([each for each in heard if each.sender == client.name and each.time >= began + 0.2]) > 10
    assert len(world.server.written) > 30


def test_qdg_14_capsules_get_through_while_datagrams_fill_the_path(identity: ServerIdentity, seed: int) -> None:
    network = IPv4Network("198.18.7.0/29")
    world = World(seed=seed, identity=identity, users=(make_user("alice", prefixes=(network,)),))
    # The client offers a network; the capsule that says so has to pass its own flood.
    client = world.add_client(
        advertise=(network,), up=Conditions(delay=0.02, rate_bps=5e6), down=Conditions(delay=0.02)
    )
    client.on_event = lambda event: (
        client.write_to_tun(bulk(client, 500)) if isinstance(event, RoutesChanged) else None
    )
    world.wait_up(client)
    world.network.run_until(lambda: events_of(world.server, PrefixesChanged), timeout=1.0)
    assert len(world.server.written) < 500


# RFC 9114


def test_h3_05_a_tunnel_whose_stream_ends_is_torn_down_and_its_address_leads_nowhere(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client()
    world.wait_up(client)
    address = address6(client)
    client_of(client).close(world.now)
    client.flush()
    world.network.run_for(0.5)
    assert server_of(world).sessions == ()
    world.server.write_to_tun([packet6(BEHIND6, address, 1)])
    assert server_of(world).stats.drops[DropReason.NO_ROUTE] == 1


# RFC 9000


def test_qtr_10_a_path_that_carries_less_than_1200_bytes_gets_no_tunnel(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    narrow = {"delay": 0.01, "size_limit": 1199}
    client = world.add_client(up=Conditions(**narrow), down=Conditions(**narrow))
    assert world.wait_closed(client, 10.0).reason is CloseReason.NO_ANSWER
    assert events_of(world.server, SessionOpened) == []


def test_qtr_12_datagrams_of_unexpected_size_close_nothing(identity: ServerIdentity, seed: int) -> None:
    world = World(seed=seed, identity=identity)
    client = world.add_client()
    world.wait_up(client)
    noise = world.network.host("noise", None, ("192.0.2.66", 6666))
    for size in (0, 1, 2, 20, 21, 1199, 1500, 9000, 65507):
        for first in (0x40, INITIAL):
            datagram = bytes([first]) + bytes(size)
            world.network.carry(noise, datagram, SERVER4, None)
            client.arrive(datagram, SERVER4, client.addresses[0])
    world.network.run_for(1.0)
    client.write_to_tun(bulk(client, 3))
    world.network.run_for(1.0)
    assert [number_of(packet) for packet in world.server.written] == [0, 1, 2]


def test_qtr_13_initials_have_1200_bytes_and_the_server_drops_shorter_ones(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    heard = overhear(world)
    client = world.add_client()
    world.wait_up(client)
    initials = [each for each in heard if each.kind == INITIAL]
    assert {each.sender for each in initials} == {client.name, world.server.name}
    assert min(each.size for each in initials) >= 1200
    # The same Initial, from a new address and one byte short, is worth no answer.
    noise = world.network.host("noise", None, ("192.0.2.66", 6666))
    world.network.carry(noise, initials[0].datagram[:1199], SERVER4, None)
    world.network.run_for(3.0)
    assert [each for each in heard if each.remote == noise.addresses[0]] == []
    assert server_of(world).status(world.now)["handshakes"] == 0


def test_hdg_11_qdg_05_no_0_rtt_is_ever_sent_also_not_by_a_client_that_was_here_before(
    identity: ServerIdentity, seed: int
) -> None:
    world = World(seed=seed, identity=identity)
    heard = overhear(world)
    client = world.add_client()
    world.wait_up(client)
    world.network.run_for(5.0)
    client_of(client).close(world.now)
    client.flush()
    world.network.run_for(5.0)
    client.replace(world.make_client())
    world.wait_up(client)
    kinds = [each.kind for each in heard if each.kind & LONG_HEADER]
    assert len(kinds) >= 4
    assert ZERO_RTT not in kinds
