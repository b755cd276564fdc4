"""A request for a name waits for the resolver; one connection has one such request at most."""

from __future__ import annotations

from qtunnel.burst import Received
from qtunnel.state.identity import ServerIdentity
from qtunnel.tunnel.client import ClientState
from qtunnel.tunnel.events import ResolveName, SessionOpened
from tests.sim.quic_pair import split
from tests.sim.world import POOL4, SERVER4, World

CLIENT = ("198.51.100.1", 40001)


def test_one_connection_has_one_name_looked_up_at_a_time_and_one_tunnel(identity: ServerIdentity) -> None:
    world = World(seed=1, identity=identity)
    server, client = world.make_server(), world.make_client(target="inside.example")
    now = world.now

    def exchange() -> None:
        nonlocal now
        now += 0.01
        client.handle_timer(now)
        sent = [Received(split(each), CLIENT, SERVER4[0]) for each in client.datagrams_to_send(now)]
        server.receive_from_udp(sent, now)
        server.handle_timer(now)
        client.receive_from_udp([Received(split(each), SERVER4) for each in server.datagrams_to_send(now)], now)

    while client.state is not ClientState.REQUESTED:
        exchange()
    for _ in range(20):
        client._connection.send_request(client._request)
    for _ in range(10):
        exchange()
    events = []
    while (event := server.next_event()) is not None:
        events.append(event)
    (asked,) = [event for event in events if isinstance(event, ResolveName)]
    assert asked.name == "inside.example"
    server.name_resolved(asked.number, [POOL4.ip], now)
    for _ in range(10):
        exchange()
    assert len(server.sessions) == 1
    opened = []
    while (event := server.next_event()) is not None:
        opened += [event] if isinstance(event, SessionOpened) else []
    assert len(opened) == 1
    assert client.state in (ClientState.OPENING, ClientState.UP)
