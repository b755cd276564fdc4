"""The server's endpoint: who gets which datagram, who may come in, and what a flood costs."""

from __future__ import annotations

import gc
import random
import weakref

import pytest
from aioquic.buffer import Buffer
from aioquic.quic.packet import QuicPacketType, pull_quic_header

from qtunnel.burst import MAX_BURST, Address, Received, Transmit
from qtunnel.drops import DropReason
from qtunnel.errors import ConfigError
from qtunnel.quic.endpoint import MAX_ANSWERS, MAX_NEW_PER_BURST, Endpoint
from qtunnel.quic.events import CloseCause
from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.waiting_clients import MAX_WAIT
from tests.sim.quic_pair import (
    CLIENT_ADDRESS,
    SERVER_ADDRESS,
    SERVER_LOCAL,
    QuicPair,
    certificate,
    client_settings,
    server_settings,
    split,
)
from tests.sim.raw_peer import RawClient

noise = random.Random(9)


def first_flight(seed: int, now: float = 1000.0) -> bytes:
    client = HttpConnection.client(client_settings(seed), SERVER_ADDRESS, now)
    return client.datagrams_to_send(now)[0].data


def spoofed_initial(token: bytes = b"") -> bytes:
    """Return an Initial with fresh connection ids and a payload that opens with no key."""
    head = b"\xc0\x00\x00\x00\x01\x08" + noise.randbytes(8) + b"\x08" + noise.randbytes(8)
    head += bytes([len(token)]) + token + b"\x44\x00"
    return head + noise.randbytes(1200 - len(head))


def address_of(number: int) -> Address:
    return (f"198.18.{number // 250}.{number % 250 + 1}", 1024 + number)


def deliver(
    endpoint: Endpoint, data: bytes, now: float = 1000.0, address: Address = CLIENT_ADDRESS
) -> list[bytes]:
    """Give an endpoint one datagram; return what it sends."""
    endpoint.receive_from_udp([Received([data], address, SERVER_LOCAL)], now)
    return [data for transmit in endpoint.datagrams_to_send(now) for data in split(transmit)]


def fill_handshakes(endpoint: Endpoint, count: int, now: float = 1000.0) -> None:
    for number in range(count):
        deliver(endpoint, first_flight(1000 + number), now + number / 10, address_of(number))


def packet_type(data: bytes) -> QuicPacketType:
    return pull_quic_header(Buffer(data=data), host_cid_length=4).packet_type


def test_two_clients_have_a_connection_each() -> None:
    one = QuicPair()
    two = QuicPair(
        endpoint=one.endpoint,
        client=client_settings(seed=50),
        address=("198.18.0.9", 1),
        siblings=one.siblings,
    )
    first, second = one.connect(), two.connect()
    assert first is not second
    assert list(one.endpoint.connections) == [first, second]
    assert (first.remote, second.remote) == (CLIENT_ADDRESS, ("198.18.0.9", 1))
    assert one.endpoint.handshakes_in_progress == 0


def test_answers_leave_from_the_address_and_the_socket_the_client_spoke_to() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    assert pair.server_connection is not None
    pair.server_connection.send_packets(stream_id, [b"x"], pair.now)
    pair.run(0.1)
    answers = [transmit for to_server, transmit in pair.transmits if not to_server]
    assert {(transmit.remote, transmit.local, transmit.path_id) for transmit in answers} == {
        (CLIENT_ADDRESS, SERVER_LOCAL, 3)
    }
    asked = [transmit for to_server, transmit in pair.transmits if to_server]
    assert {(transmit.local, transmit.path_id) for transmit in asked} == {(None, 0)}


def test_a_client_whose_address_changes_keeps_its_connection() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.run(0.5)
    pair.address = ("203.0.113.7", 5555)
    pair.client.send_packets(stream_id, [b"from elsewhere"], pair.now)
    pair.run(0.5)
    server = pair.server_connection
    assert server is not None
    assert server.remote == ("203.0.113.7", 5555)
    server.send_packets(stream_id, [b"found you"], pair.now)
    pair.run(0.5)
    assert pair.packets(pair.server_events) == [b"from elsewhere"]
    assert pair.packets(pair.client_events) == [b"found you"]
    last = [transmit for to_server, transmit in pair.transmits if not to_server][-1]
    assert (last.remote, last.local) == (("203.0.113.7", 5555), SERVER_LOCAL)
    assert pair.closed(pair.client_events) is None


def test_a_path_challenge_is_a_transmit_of_its_own() -> None:
    pair = QuicPair(client=client_settings(max_udp_payload=1400), server=server_settings(max_udp_payload=1400))
    stream_id = pair.open_tunnel()
    pair.run(0.5)
    server = pair.server_connection
    assert server is not None
    pair.address = ("203.0.113.7", 5555)
    size = pair.client.max_packet_size(stream_id)
    pair.client.send_packets(stream_id, [bytes(size)] * 2, pair.now)
    server.send_packets(stream_id, [bytes(size)] * 5, pair.now)
    pair.run(0.5)
    to_new = [
        transmit for to_server, transmit in pair.transmits if not to_server and transmit.remote == pair.address
    ]
    assert to_new[0].segment_size is None


def test_with_an_ipv6_address_flow_information_does_not_make_another_client() -> None:
    pair = QuicPair(address=("2001:db8::7", 4000, 0, 0))
    stream_id = pair.open_tunnel()
    pair.address = ("2001:db8::7", 4000, 12345, 0)
    pair.client.send_packets(stream_id, [b"same"], pair.now)
    pair.run(0.3)
    assert pair.packets(pair.server_events) == [b"same"]
    assert pair.server_connection is not None
    assert pair.server_connection.quic.peer_addresses == [("2001:db8::7", 4000)]
    assert pair.server_connection.remote == ("2001:db8::7", 4000, 12345, 0)


def test_connection_ids_are_unique_in_the_endpoint() -> None:
    """A random source that repeats itself must not hand one client's id to another."""

    class Repeating:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, size: int) -> bytes:
            self.calls += 1
            return (self.calls // 3 % 97).to_bytes(size, "big")

    endpoint = Endpoint(server_settings(random_bytes=Repeating()))
    pairs = []
    for number in range(4):
        pair = QuicPair(endpoint=endpoint, address=address_of(number), start=1000.0 + number)
        pair.client = HttpConnection.client(client_settings(seed=70 + number), SERVER_ADDRESS, pair.now)
        pairs.append(pair)
        pair.connect()
    cids = [cid for connection in endpoint.connections for cid in connection.quic.host_cids]
    assert len(cids) == len(set(cids)) == 32


# -- Retry


def test_with_many_handshakes_in_progress_new_clients_get_a_retry_and_come_in_by_it() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=5))
    fill_handshakes(endpoint, 5)
    assert endpoint.retry_active
    pair = QuicPair(endpoint=endpoint, start=1001.0)
    pair.connect()
    assert endpoint.retries_sent == 1
    retries = [data for _, to_server, data in pair.wire if not to_server and data[0] & 0xF0 == 0xF0]
    assert [packet_type(data) for data in retries] == [QuicPacketType.RETRY]
    assert len(retries[0]) < 200


def test_below_the_threshold_there_is_no_retry() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=5))
    fill_handshakes(endpoint, 4)
    assert not endpoint.retry_active
    assert endpoint.handshakes_in_progress == 4
    QuicPair(endpoint=endpoint, start=1001.0).connect()
    assert endpoint.retries_sent == 0


def test_retry_ends_when_the_handshakes_have_timed_out() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=5))
    fill_handshakes(endpoint, 5)
    now = 1000.0
    while (at := endpoint.get_timer()) is not None and at < 1015.0:
        now = max(now, at)
        endpoint.handle_timer(now)
        endpoint.datagrams_to_send(now)
        assert endpoint.next_event() is None
    assert endpoint.handshakes_in_progress == 0
    assert not endpoint.retry_active
    assert endpoint._by_cid == {}
    assert endpoint._cids == {}


def test_initials_without_a_token_above_the_rate_get_a_retry() -> None:
    endpoint = Endpoint(server_settings(initials_per_second=3.0))
    kinds = [packet_type(deliver(endpoint, first_flight(seed), address=address_of(seed))[0]) for seed in range(6)]
    assert kinds == [QuicPacketType.INITIAL] * 3 + [QuicPacketType.RETRY] * 3


def test_one_burst_begins_a_few_handshakes_only_and_the_others_get_a_retry() -> None:
    endpoint = Endpoint(server_settings())
    groups = [Received([first_flight(seed)], address_of(seed)) for seed in range(MAX_NEW_PER_BURST + 6)]
    endpoint.receive_from_udp(groups, 1000.0)
    kinds = [packet_type(split(transmit)[0]) for transmit in endpoint.datagrams_to_send(1000.0)]
    assert kinds.count(QuicPacketType.RETRY) == 6
    assert endpoint.handshakes_in_progress == MAX_NEW_PER_BURST


def test_a_token_from_another_address_is_refused_with_invalid_token() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=1))
    fill_handshakes(endpoint, 1)
    client = HttpConnection.client(client_settings(), SERVER_ADDRESS, 1001.0)
    retry = deliver(endpoint, client.datagrams_to_send(1001.0)[0].data, 1001.0)[0]
    client.receive_from_udp([Received([retry], SERVER_ADDRESS)], 1001.1)
    second = client.datagrams_to_send(1001.1)[0].data
    answer = deliver(endpoint, second, 1001.1, ("203.0.113.1", 7))
    client.receive_from_udp([Received(answer, SERVER_ADDRESS)], 1001.2)
    event = client.next_event()
    assert (event.cause, event.error_code) == (CloseCause.PEER, 0x0B)  # type: ignore[union-attr]
    assert endpoint.handshakes_in_progress == 1


def test_a_token_that_is_too_old_is_refused_and_a_fresh_one_is_not() -> None:
    for wait, begins in ((20.0, 1), (5.0, 2)):
        endpoint = Endpoint(server_settings(retry_threshold=1, handshake_timeout=100.0))
        fill_handshakes(endpoint, 1)
        client = HttpConnection.client(client_settings(handshake_timeout=60), SERVER_ADDRESS, 1001.0)
        retry = deliver(endpoint, client.datagrams_to_send(1001.0)[0].data, 1001.0)[0]
        client.receive_from_udp([Received([retry], SERVER_ADDRESS)], 1001.1)
        second = client.datagrams_to_send(1001.1)[0].data
        deliver(endpoint, second, 1001.0 + wait)
        assert endpoint.handshakes_in_progress == begins


def test_a_foreign_token_counts_as_none() -> None:
    """A NEW_TOKEN of another server at this address must not keep its client out (RFC 9000 §8.1.3)."""
    pair = QuicPair()
    pair.client.quic._peer_token = b"another server's"
    pair.connect()
    endpoint = Endpoint(server_settings(initials_per_second=3.0))
    answers = [deliver(endpoint, spoofed_initial(b"t" * 52)) for _ in range(6)]
    assert [[packet_type(data) for data in answer] for answer in answers] == [[]] * 3 + [
        [QuicPacketType.RETRY]
    ] * 3
    assert endpoint.handshakes_in_progress == 0


def test_refusals_of_bad_tokens_are_limited() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=1))
    fill_handshakes(endpoint, 1)
    client = HttpConnection.client(client_settings(), SERVER_ADDRESS, 1001.0)
    retry = deliver(endpoint, client.datagrams_to_send(1001.0)[0].data, 1001.0)[0]
    client.receive_from_udp([Received([retry], SERVER_ADDRESS)], 1001.1)
    second = client.datagrams_to_send(1001.1)[0].data
    answered = sum(len(deliver(endpoint, second, 1001.1, address_of(number))) for number in range(200))
    assert 0 < answered <= 52
    assert endpoint.handshakes_in_progress == 1
    assert endpoint.drops[DropReason.BAD_UDP_DATAGRAM] == 200


def test_a_client_that_proved_its_address_is_not_held_to_three_times_what_it_sent() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=1))
    fill_handshakes(endpoint, 1)
    pair = QuicPair(endpoint=endpoint, start=1001.0)
    server = pair.connect()
    assert server.quic._network_paths[0].is_validated


def test_two_hundred_clients_that_come_at_once_are_in_within_a_second() -> None:
    """Those with a Retry token that one burst has no room for wait their turn, not for a retransmission."""
    endpoint = Endpoint(server_settings())
    now = 1000.0
    clients = {
        address_of(number): HttpConnection.client(client_settings(5000 + number), SERVER_ADDRESS, now)
        for number in range(200)
    }
    waiting = set(clients)
    while waiting:
        to_server = [
            Received(split(transmit), address)
            for address, client in clients.items()
            for transmit in client.datagrams_to_send(now)
        ]
        now += 0.01
        assert now < 1001.0, f"{len(waiting)} of {len(clients)} are not in"
        for start in range(0, len(to_server), MAX_BURST):
            endpoint.receive_from_udp(to_server[start : start + MAX_BURST], now)
        served = run_endpoint(endpoint, now)
        now += 0.01
        for transmit in served:
            clients[transmit.remote].receive_from_udp([Received(split(transmit), SERVER_ADDRESS)], now)
        for address, client in clients.items():
            at = client.get_timer()
            if at is not None and at <= now:
                client.handle_timer(now)
            while client.next_event() is not None:
                pass
            if client.handshake_confirmed:
                waiting.discard(address)
    assert len(endpoint.connections) == len(clients)
    assert endpoint.drops[DropReason.HANDSHAKES_FULL] == 0


def run_endpoint(endpoint: Endpoint, now: float) -> list[Transmit]:
    """Let an endpoint do what is due; return what it sends. No call begins more handshakes than allowed."""
    transmits = []
    while True:
        transmits += endpoint.datagrams_to_send(now)
        while endpoint.next_event() is not None:
            pass
        at = endpoint.get_timer()
        if at is None or at > now:
            return transmits
        before = len(endpoint._cids)
        endpoint.handle_timer(now)
        assert len(endpoint._cids) - before <= MAX_NEW_PER_BURST


def retried_clients(endpoint: Endpoint, count: int, now: float) -> list[Received]:
    """Return the second Initial, with a token, of that many clients."""
    second = []
    for number in range(count):
        address = address_of(500 + number)
        client = HttpConnection.client(client_settings(7000 + number), SERVER_ADDRESS, now)
        (retry,) = deliver(endpoint, client.datagrams_to_send(now)[0].data, now, address)
        client.receive_from_udp([Received([retry], SERVER_ADDRESS)], now)
        second.append(Received([client.datagrams_to_send(now)[0].data], address))
    return second


def test_while_clients_with_a_token_wait_others_begin_no_handshake() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=1))
    fill_handshakes(endpoint, 1)
    second = retried_clients(endpoint, MAX_NEW_PER_BURST + 2, 1000.0)
    endpoint._settings = server_settings(retry_threshold=1000)
    endpoint.receive_from_udp(second, 1000.0)
    assert endpoint.handshakes_in_progress == 1 + MAX_NEW_PER_BURST
    endpoint.datagrams_to_send(1000.0)
    (answer,) = deliver(endpoint, first_flight(1), 1000.0, address_of(900))
    assert packet_type(answer) is QuicPacketType.RETRY
    assert endpoint.get_timer() == 1000.0
    endpoint.handle_timer(1000.0)
    assert endpoint.handshakes_in_progress == 1 + MAX_NEW_PER_BURST + 2
    assert endpoint.get_timer() != 1000.0


def test_a_client_with_a_token_does_not_wait_longer_than_is_of_use() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=1))
    fill_handshakes(endpoint, 1)
    endpoint.receive_from_udp(retried_clients(endpoint, MAX_NEW_PER_BURST + 2, 1001.0), 1001.0)
    endpoint.handle_timer(1001.0 + MAX_WAIT + 0.01)
    assert endpoint.handshakes_in_progress == 1 + MAX_NEW_PER_BURST
    assert endpoint.drops[DropReason.HANDSHAKES_FULL] == 2


# -- bounds


def test_handshakes_are_bounded_also_for_clients_with_a_token() -> None:
    endpoint = Endpoint(server_settings(retry_threshold=1, max_handshakes=3))
    clients = [HttpConnection.client(client_settings(seed), SERVER_ADDRESS, 1000.0) for seed in range(200, 206)]
    for number, client in enumerate(clients):
        at = 1000.0 + number / 10
        sent = client.datagrams_to_send(at)[0].data
        answer = deliver(endpoint, sent, at, address_of(number))
        client.receive_from_udp([Received(answer, SERVER_ADDRESS)], at)
        for transmit in client.datagrams_to_send(at) if number else ():
            deliver(endpoint, transmit.data, at, address_of(number))
    assert endpoint.handshakes_in_progress == 3
    assert endpoint.drops[DropReason.HANDSHAKES_FULL] == 3


def test_sessions_are_bounded_and_the_next_client_is_told() -> None:
    endpoint = Endpoint(server_settings(max_sessions=1))
    QuicPair(endpoint=endpoint).connect()
    pair = QuicPair(endpoint=endpoint, client=client_settings(seed=9), address=("198.18.0.77", 5), start=1001.0)
    pair.run_until(lambda: pair.closed(pair.client_events))
    closed = pair.closed(pair.client_events)
    assert closed is not None
    assert (closed.cause, closed.error_code, closed.reason) == (CloseCause.PEER, 0x02, "CONNECTION_REFUSED")
    assert endpoint.drops[DropReason.HANDSHAKES_FULL] >= 1


def test_an_initial_that_cannot_be_opened_leaves_nothing_behind() -> None:
    endpoint = Endpoint(server_settings())
    assert deliver(endpoint, spoofed_initial()) == []
    assert endpoint.handshakes_in_progress == 0
    assert (endpoint._by_cid, endpoint._cids, endpoint._touched) == ({}, {}, {})
    assert endpoint.get_timer() is None
    assert endpoint.drops == {DropReason.BAD_UDP_DATAGRAM: 1}


def test_answers_to_strangers_are_bounded_between_two_sends() -> None:
    endpoint = Endpoint(server_settings(initials_per_second=1.0))
    for number in range(10):
        group = [Received([spoofed_initial()], address_of(100 * number + each)) for each in range(100)]
        endpoint.receive_from_udp(group, 1000.0)
    assert len(endpoint.datagrams_to_send(1000.0)) == MAX_ANSWERS


def test_every_timer_is_armed_once_however_often_it_moves() -> None:
    pair = QuicPair(delay=0.001)
    stream_id = pair.open_tunnel()
    for _ in range(500):
        pair.client.send_packets(stream_id, [b"x"], pair.now)
        pair.run(0.01)
    assert len(pair.endpoint._timers) <= 64 + 4
    assert pair.endpoint.get_timer() == min(
        connection.get_timer() or 0.0 for connection in pair.endpoint.connections
    )


def test_only_connections_something_happened_to_are_serviced() -> None:
    endpoint = Endpoint(server_settings())
    pairs = []
    for number in range(3):
        pair = QuicPair(
            endpoint=endpoint,
            client=client_settings(seed=20 + number, keep_alive=None),
            address=address_of(number),
            start=1000.0 + number,
        )
        pair.connect()
        pair.run(0.5)
        pairs.append(pair)
    serviced: list[HttpConnection] = []
    original = HttpConnection.datagrams_to_send

    def spy(self: HttpConnection, now: float):  # type: ignore[no-untyped-def]
        serviced.append(self)
        return original(self, now)

    busy = next(iter(endpoint.connections))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpConnection, "datagrams_to_send", spy)
        busy.ping()
        endpoint.datagrams_to_send(1003.9)
    assert serviced == [busy]


# -- other strangers


def test_an_unknown_short_header_gets_a_stateless_reset_and_is_counted() -> None:
    endpoint = Endpoint(server_settings())
    answer = deliver(endpoint, b"\x40" + b"abcd" + bytes(60))
    assert len(answer) == 1
    assert len(answer[0]) == 43
    assert endpoint.drops == {DropReason.UNKNOWN_CONNECTION: 1}
    assert deliver(endpoint, b"\x40" + b"abcd" + bytes(10)) == []


def test_two_endpoints_do_not_answer_each_other_for_long() -> None:
    one, other = Endpoint(server_settings()), Endpoint(server_settings(seed=3))
    for start in (b"\x40" + b"abcd" + bytes(1195), b"\xc0\x00\x00\x00\x09\x08" + bytes(1194), spoofed_initial()):
        data, rounds = [start], 0
        while data:
            data = deliver(one, data[0])
            one, other = other, one
            rounds += 1
        assert rounds < 30


def test_another_version_gets_a_version_negotiation_and_a_negotiation_does_not() -> None:
    endpoint = Endpoint(server_settings())
    ask = b"\xc0\x0a\x1a\x2a\x3a\x08" + b"original" + b"\x04" + b"clnt" + bytes(1182)
    header = pull_quic_header(Buffer(data=deliver(endpoint, ask)[0]), host_cid_length=4)
    assert header.packet_type is QuicPacketType.VERSION_NEGOTIATION
    assert (header.source_cid, header.destination_cid, header.supported_versions) == (b"original", b"clnt", [1])
    assert deliver(endpoint, ask[:1199]) == []
    assert deliver(endpoint, b"\xc0\x00\x00\x00\x00" + ask[5:]) == []


def test_a_client_of_another_version_finds_version_1() -> None:
    endpoint = Endpoint(server_settings())
    peer = RawClient(endpoint, supported_versions=[0x6B3343CF, 1])
    peer.connect()
    assert [type(event).__name__ for event in peer.events][:1] == ["HandshakeCompleted"]


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xc0", b"\x40", b"\xc0\x00\x00\x00\x01", b"\x00" * 1500])
def test_odd_datagrams_are_counted_drops(data: bytes) -> None:
    endpoint = Endpoint(server_settings())
    deliver(endpoint, data)
    assert endpoint.drops.total() == 1
    assert endpoint.next_event() is None


def test_a_handshake_or_0_rtt_packet_of_a_stranger_is_dropped() -> None:
    endpoint = Endpoint(server_settings())
    for first in (0xD0, 0xE0, 0xF0):
        assert deliver(endpoint, bytes([first]) + spoofed_initial()[1:]) == []
    assert endpoint.drops == {DropReason.UNKNOWN_CONNECTION: 3}


# -- the whole


def test_established_connections_are_served_before_handshakes_and_strangers() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.run(0.5)
    pair.client.send_packets(stream_id, [b"first"], pair.now)
    ours = [Received(split(transmit), CLIENT_ADDRESS) for transmit in pair.client.datagrams_to_send(pair.now)]
    order: list[str] = []
    original = HttpConnection.note_edge
    established = pair.server_connection

    def spy(self: HttpConnection, group: Received) -> Address:
        order.append("established" if self is established else "new")
        return original(self, group)

    flood = [Received([first_flight(seed)], address_of(seed)) for seed in range(300, 303)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpConnection, "note_edge", spy)
        pair.endpoint.receive_from_udp([*flood, *ours], pair.now)
    assert order[0] == "established"
    assert order.count("new") == 3


def test_closing_all_tells_every_client() -> None:
    pair = QuicPair()
    pair.connect()
    pair.endpoint.close_all(0x100, "shutdown")
    pair.run(1)
    closed = pair.closed(pair.client_events)
    assert closed is not None
    assert (closed.cause, closed.reason) == (CloseCause.PEER, "shutdown")
    pair.run(5)
    assert pair.endpoint._by_cid == {}
    assert pair.endpoint.get_timer() is None


def test_a_certificate_that_cannot_be_used_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="certificate"):
        Endpoint(server_settings(certificate=b"nothing"))
    with pytest.raises(ConfigError, match="private_key"):
        Endpoint(server_settings(private_key=certificate()[0]))


def test_a_handshake_that_timed_out_leaves_nothing_for_the_cyclic_collector() -> None:
    endpoint = Endpoint(server_settings())
    gc.collect()
    gc.disable()
    try:
        fill_handshakes(endpoint, 3)
        alive = [weakref.ref(part) for each in endpoint._handshaking for part in (each, each.quic, each.quic.tls)]
        assert len(alive) == 9
        now = 1000.0
        while (at := endpoint.get_timer()) is not None:
            now = max(now, at)
            endpoint.handle_timer(now)
            endpoint.datagrams_to_send(now)
            while endpoint.next_event() is not None:
                pass
        assert [part() for part in alive] == [None] * 9
    finally:
        gc.enable()


def test_established_and_new_clients_get_through_a_flood_of_spoofed_initials() -> None:
    """10,000 a second of virtual time for three seconds; the long version is marked slow."""
    flood(seconds=3)


@pytest.mark.slow
def test_a_minute_of_flood_leaves_nothing_behind() -> None:
    flood(seconds=60)


def flood(seconds: int) -> None:
    endpoint = Endpoint(server_settings())
    pairs: list[QuicPair] = []
    for number in range(5):
        settings = client_settings(seed=20 + number)
        QuicPair(endpoint=endpoint, client=settings, address=address_of(number), siblings=pairs)
    streams = [pair.open_tunnel() for pair in pairs]
    now = max(pair.now for pair in pairs)
    late = None
    sizes: list[int] = []
    sent = 0
    for step in range(seconds * 100):
        now += 0.01
        burst = [
            Received([spoofed_initial()], (f"100.64.{noise.randrange(250)}.{noise.randrange(250)}", 999))
            for _ in range(100)
        ]
        endpoint.receive_from_udp(burst, now)
        endpoint.datagrams_to_send(now)
        if step == seconds * 50:
            late = QuicPair(
                endpoint=endpoint,
                client=client_settings(seed=99),
                address=("198.18.9.9", 9),
                start=now,
                siblings=list(pairs),
            )
            late.connect()
            now = late.now
        if step % 20 == 0:
            sent += 1
            for pair, stream_id in zip(pairs, streams, strict=True):
                pair.now = max(pair.now, now)
                pair.client.send_packets(stream_id, [b"%d" % step], pair.now)
                pair.run(0.001)
            sizes.append(
                len(endpoint._by_cid) + len(endpoint._cids) + len(endpoint._timers) + len(endpoint._touched)
            )
    for pair in pairs:
        pair.run(0.5)
    assert [pair.closed(pair.client_events) for pair in pairs] == [None] * 5
    assert [len(pair.packets(pair.server_events)) for pair in pairs] == [sent] * 5
    assert late is not None
    assert max(sizes[3:]) < 2 * max(sizes[:3]) + 64
    assert endpoint.retries_sent > seconds * 9000
