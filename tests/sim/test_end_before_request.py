"""A connection that ends between two wake-ups: the tunnel says so, and never tries to use it."""

from __future__ import annotations

from qtunnel.burst import Received
from qtunnel.state.identity import ServerIdentity
from qtunnel.tunnel.client import ClientState, ClientTunnel
from qtunnel.tunnel.events import Closed, CloseReason
from tests.sim.quic_pair import split
from tests.sim.world import SERVER4, World

CLIENT = ("198.51.100.1", 40001)


def closed_of(client: ClientTunnel) -> list[CloseReason]:
    reasons = []
    while (event := client.next_event()) is not None:
        if isinstance(event, Closed):
            reasons.append(event.reason)
    return reasons


def verified_client(identity: ServerIdentity) -> tuple[ClientTunnel, float]:
    """Return a client that has verified its server and waits for leave to ask."""
    world = World(seed=1, identity=identity)
    server, client, now = world.make_server(), world.make_client(), world.now
    client._hold_request = True
    for _ in range(20):
        now += 0.001
        sent = [Received(split(each), CLIENT, SERVER4[0]) for each in client.datagrams_to_send(now)]
        server.receive_from_udp(sent, now)
        client.receive_from_udp([Received(split(each), SERVER4) for each in server.datagrams_to_send(now)], now)
    assert client.state is ClientState.WAITING_FOR_SETTINGS
    return client, now


def test_a_connection_that_ended_before_the_request_is_a_closed_tunnel(identity: ServerIdentity) -> None:
    client, now = verified_client(identity)
    client._connection.close(0x100)
    client.allow_request(now)
    assert client.state is ClientState.CLOSED
    assert len(closed_of(client)) == 1


def test_a_connection_that_dies_in_sending_is_a_closed_tunnel_without_another_wake_up(
    identity: ServerIdentity,
) -> None:
    client, now = verified_client(identity)
    quic = client._connection.quic

    def die(now: float) -> list[object]:
        quic._fail_internally()
        quic.terminate()
        return []

    object.__setattr__(quic, "datagrams_to_send", die)
    object.__setattr__(quic, "batches_to_send", die)
    assert client.datagrams_to_send(now) == []
    assert client.state is ClientState.CLOSED
    assert len(closed_of(client)) == 1
