"""A client that asks for a tunnel and thinks better of it in the same breath: both arrive in one burst."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qtunnel.burst import Received
from qtunnel.state.identity import ServerIdentity
from qtunnel.tunnel.client import ClientState, ClientTunnel
from qtunnel.tunnel.server import ServerTunnel
from tests.sim.quic_pair import split
from tests.sim.world import SERVER4, World

CLIENT = ("198.51.100.1", 40001)
Leave = Callable[[ClientTunnel, float], None]


def close(client: ClientTunnel, now: float) -> None:
    client.close(now)


def reset_stream(client: ClientTunnel, now: float) -> None:
    client._connection.reset_stream(0, 0x10C)


def to_server(client: ClientTunnel, now: float) -> list[Received]:
    return [Received(split(each), CLIENT, SERVER4[0]) for each in client.datagrams_to_send(now)]


def exchange(client: ClientTunnel, server: ServerTunnel, now: float) -> None:
    """Carry datagrams both ways, once."""
    server.receive_from_udp(to_server(client, now), now)
    answers = [Received(split(each), SERVER4) for each in server.datagrams_to_send(now)]
    client.receive_from_udp(answers, now)


@pytest.mark.parametrize("leave", [close, reset_stream])
@pytest.mark.parametrize("token", [None, "no-user-has-this-token"], ids=["admitted", "refused"])
def test_a_request_taken_back_in_its_own_burst_leaves_nothing_behind(
    identity: ServerIdentity, leave: Leave, token: str | None
) -> None:
    world = World(seed=1, identity=identity)
    server, client = world.make_server(), world.make_client(token=token)
    now = world.now
    while client.state is not ClientState.REQUESTED:
        now += 0.001
        exchange(client, server, now)
    burst = to_server(client, now)
    leave(client, now)
    for _ in range(10):  # it is paced
        now += 0.01
        client.handle_timer(now)
        burst += to_server(client, now)
    server.receive_from_udp(burst, now)
    while server.next_event() is not None:
        pass
    server.datagrams_to_send(now)
    assert server.sessions == ()
    # The next one is served as ever.
    other = world.make_client()
    for _ in range(20):
        now += 0.001
        exchange(other, server, now)
    assert len(server.sessions) == 1
