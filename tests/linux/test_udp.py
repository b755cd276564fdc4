"""UDP sockets on a real kernel: a veth pair, sometimes with a router between."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket

import pytest
import uvloop

from qtunnel.burst import Received, SendResult, Transmit
from qtunnel.linux.udp import UdpSocket
from tests.linux.daemons import wait_until
from tests.linux.namespaces import Namespace, Namespaces

pytestmark = pytest.mark.root

CLIENT4, SERVER4 = "198.18.1.1", "198.18.1.2"
CLIENT6, SERVER6 = "2001:db8:1::1", "2001:db8:1::2"
FAMILIES = pytest.mark.parametrize(
    ("client", "server", "any_address"),
    [(CLIENT4, SERVER4, "0.0.0.0"), (CLIENT6, SERVER6, "::")],
    ids=["ipv4", "ipv6"],
)


class Pair:
    """Two hosts on one link; sockets opened here are closed by close()."""

    def __init__(self, lab: Namespaces) -> None:
        self.left, self.right = lab.add("l"), lab.add("r")
        lab.join(self.left, "eth0", self.right, "eth0")
        for host, address4, address6 in ((self.left, CLIENT4, CLIENT6), (self.right, SERVER4, SERVER6)):
            host.add_address("eth0", f"{address4}/24")
            host.add_address("eth0", f"{address6}/64")
        self._sockets: list[UdpSocket] = []

    def open(self, host: Namespace, address: str, port: int = 0, **options: object) -> UdpSocket:
        with host.entered():
            udp = UdpSocket.open((address, port), **options)  # type: ignore[arg-type]  # keywords as given
        self._sockets.append(udp)
        return udp

    def close(self) -> None:
        for udp in self._sockets:
            udp.close()


@pytest.fixture
def pair(lab: Namespaces):
    made = Pair(lab)
    try:
        yield made
    finally:
        made.close()


def wait(udp: UdpSocket, timeout: float = 30.0) -> None:
    assert select.select([udp], [], [], timeout)[0], "nothing came"


def receive_all(udp: UdpSocket, count: int) -> list[Received]:
    bursts: list[Received] = []
    while sum(len(burst.datagrams) for burst in bursts) < count:
        wait(udp)
        bursts += udp.receive()
    return bursts


@FAMILIES
def test_the_server_answers_from_the_address_the_client_spoke_to(
    pair: Pair, client: str, server: str, any_address: str
) -> None:
    second = "198.18.1.77" if "." in server else "2001:db8:1::77"
    pair.right.add_address("eth0", f"{second}/{24 if '.' in server else 64}")
    serving = pair.open(pair.right, any_address, 4433)
    calling = pair.open(pair.left, any_address)
    assert calling.send(Transmit(b"hello", (second, 4433))) is SendResult.SENT
    (burst,) = receive_all(serving, 1)
    assert (burst.datagrams, burst.local) == ([b"hello"], second)
    serving.send(Transmit(b"answer", burst.remote, local=burst.local))
    (answer,) = receive_all(calling, 1)
    assert (answer.datagrams, answer.remote[0], answer.local) == ([b"answer"], second, client)


@FAMILIES
def test_socket_bound_to_one_address_reports_no_local_address(
    pair: Pair, client: str, server: str, any_address: str
) -> None:
    serving = pair.open(pair.right, server, 4433)
    pair.open(pair.left, any_address).send(Transmit(b"x", (server, 4433)))
    assert receive_all(serving, 1)[0].local is None
    assert serving.local_address[:2] == (server, 4433)


def test_link_local_peers_can_be_answered(pair: Pair) -> None:
    address = pair.right.run("ip -6 -o address show dev eth0 scope link").split()[3].partition("/")[0]
    with pair.left.entered():
        index = socket.if_nametoindex("eth0")
    serving = pair.open(pair.right, "::", 4433)
    calling = pair.open(pair.left, "::")
    assert calling.send(Transmit(b"x", (address, 4433, 0, index))) is SendResult.SENT
    (burst,) = receive_all(serving, 1)
    assert burst.local == address
    assert serving.send(Transmit(b"y", burst.remote, local=burst.local)) is SendResult.SENT
    assert receive_all(calling, 1)[0].datagrams == [b"y"]


@FAMILIES
@pytest.mark.parametrize("gro", [True, False], ids=["gro", "no gro"])
@pytest.mark.parametrize("gso", [True, False], ids=["gso", "no gso"])
def test_a_batch_arrives_as_its_datagrams(
    pair: Pair, client: str, server: str, any_address: str, gso: bool, gro: bool
) -> None:
    serving = pair.open(pair.right, any_address, 4433, gro=gro)
    calling = pair.open(pair.left, any_address, gso=gso)
    datagrams = [bytes([number]) * 1200 for number in range(40)] + [b"last"]
    transmit = Transmit(b"".join(datagrams), (server, 4433), segment_size=1200)
    assert calling.send(transmit) is SendResult.SENT
    assert calling.gso_available is gso
    bursts = receive_all(serving, 41)
    assert [datagram for burst in bursts for datagram in burst.datagrams] == datagrams
    if gso and gro:
        assert serving.counters.receive_calls < 5
    assert calling.counters.send_calls == (1 if gso else 41)


@FAMILIES
def test_ecn_bits_arrive(pair: Pair, client: str, server: str, any_address: str) -> None:
    serving = pair.open(pair.right, any_address, 4433)
    calling = pair.open(pair.left, any_address)
    is_ipv4 = "." in server
    level, option = (socket.IPPROTO_IP, socket.IP_TOS) if is_ipv4 else (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
    calling._socket.setsockopt(level, option, 0b10)
    calling.send(Transmit(b"x", (server, 4433)))
    assert receive_all(serving, 1)[0].ecn == 0b10


@FAMILIES
def test_closed_port_is_reported_by_the_error_queue_and_costs_no_datagram(
    pair: Pair, client: str, server: str, any_address: str
) -> None:
    listening = pair.open(pair.right, any_address, 4433)
    calling = pair.open(pair.left, any_address)
    assert calling.send(Transmit(b"to nobody", (server, 9))) is SendResult.SENT
    wait(calling)  # the ICMP error makes the socket readable
    assert calling.send(Transmit(b"to somebody", (server, 4433))) is SendResult.SENT
    assert receive_all(listening, 1)[0].datagrams == [b"to somebody"]
    (error,) = calling.read_errors()
    assert (error.errno, error.remote[:2], error.quoted) == (errno.ECONNREFUSED, (server, 9), b"to nobody")
    assert (error.offender, error.mtu, error.is_local) == (server, None, False)
    assert calling.error_wakeups > 0
    assert select.select([calling], [], [], 0)[0] == []


@FAMILIES
def test_closed_port_does_not_disturb_a_receive(pair: Pair, client: str, server: str, any_address: str) -> None:
    calling = pair.open(pair.left, any_address)
    calling.send(Transmit(b"to nobody", (server, 9)))
    wait(calling)
    answering = pair.open(pair.right, any_address, 4433)
    answering.send(Transmit(b"hello", (client, calling.local_address[1])))
    assert receive_all(calling, 1)[0].datagrams == [b"hello"]
    assert len(calling.read_errors()) == 1


@FAMILIES
def test_oversize_send_is_too_big_and_tells_the_mtu_of_the_link(
    pair: Pair, client: str, server: str, any_address: str
) -> None:
    calling = pair.open(pair.left, any_address)
    overhead = 28 if "." in server else 48
    assert calling.send(Transmit(bytes(1500 - overhead), (server, 9))) is SendResult.SENT
    assert calling.send(Transmit(bytes(1501 - overhead), (server, 9))) is SendResult.TOO_BIG
    local = [error for error in calling.read_errors() if error.is_local]
    assert local
    assert {error.mtu for error in local} == {1500}


@FAMILIES
def test_link_that_shrinks_makes_sends_too_big_and_smaller_ones_go_on(
    pair: Pair, client: str, server: str, any_address: str
) -> None:
    serving = pair.open(pair.right, any_address, 4433)
    calling = pair.open(pair.left, any_address)
    pair.left.run("ip link set eth0 mtu 1400")
    big = Transmit(bytes(1452 * 3), (server, 4433), segment_size=1452)
    small = Transmit(bytes(1300 * 3), (server, 4433), segment_size=1300)
    assert calling.send(big) is SendResult.TOO_BIG
    assert calling.send(small) is SendResult.SENT
    assert calling.gso_available
    assert sum(len(burst.datagrams) for burst in receive_all(serving, 3)) == 3


@FAMILIES
def test_no_route_and_vanished_source_are_results(pair: Pair, client: str, server: str, any_address: str) -> None:
    calling = pair.open(pair.left, any_address)
    nowhere = "192.0.2.1" if "." in server else "2001:db8:dead::1"
    assert calling.send(Transmit(b"x", (nowhere, 9))) is SendResult.UNREACHABLE
    bound = pair.open(pair.left, client)
    pair.left.run(f"ip address del {client}/{24 if '.' in client else 64} dev eth0")
    assert bound.send(Transmit(b"x", (server, 9))) in (SendResult.FAILED, SendResult.UNREACHABLE)


def test_interface_binding_beats_the_better_route(lab: Namespaces, pair: Pair) -> None:
    lab.join(pair.left, "eth1", pair.right, "eth1")
    pair.left.add_address("eth1", "198.18.2.1/24")
    pair.right.add_address("eth1", "198.18.2.2/24")
    pair.left.run(f"ip route add {SERVER4}/32 dev eth1 via 198.18.2.2 metric 4000")
    pair.left.run(f"ip route add {SERVER4}/32 dev eth0 metric 1")
    serving = pair.open(pair.right, "0.0.0.0", 4433)
    for interface, source in ((None, CLIENT4), ("eth1", "198.18.2.1"), ("eth0", CLIENT4)):
        calling = pair.open(pair.left, "0.0.0.0", interface=interface)
        assert calling.send(Transmit(b"x", (SERVER4, 4433))) is SendResult.SENT
        assert receive_all(serving, 1)[0].remote[0] == source


def test_more_segments_than_the_kernel_takes_go_out_singly_and_segmenting_stays_on(pair: Pair) -> None:
    serving = pair.open(pair.right, "0.0.0.0", 4433)
    calling = pair.open(pair.left, "0.0.0.0")
    datagrams = [b"%05d" % number for number in range(200)]
    assert calling.send(Transmit(b"".join(datagrams), (SERVER4, 4433), segment_size=5)) is SendResult.SENT
    assert [datagram for burst in receive_all(serving, 200) for datagram in burst.datagrams] == datagrams
    assert (calling.counters.gso_fallbacks, calling.gso_available) == (1, True)


@FAMILIES
def test_overflow_of_the_receive_buffer_is_counted(pair: Pair, client: str, server: str, any_address: str) -> None:
    serving = pair.open(pair.right, any_address, 4433, receive_buffer=20_000, gro=False)
    calling = pair.open(pair.left, any_address)
    calling.send(Transmit(b"who are you", (server, 4433)))  # or neighbour discovery loses some, too
    receive_all(serving, 1)
    for _ in range(200):
        calling.send(Transmit(bytes(1200), (server, 4433)))
    wait_until(serving.drops, "a datagram that finds no room")
    received = 0

    def all_are_known() -> bool:
        nonlocal received
        received += sum(len(burst.datagrams) for burst in serving.receive())
        return received + serving.drops() >= 200

    wait_until(all_are_known, "the rest of the datagrams")
    assert 0 < received < 200
    assert serving.drops() == 200 - received


def test_closed_socket_sends_and_receives_nothing(pair: Pair) -> None:
    calling = pair.open(pair.left, "0.0.0.0")
    calling.close()
    assert calling.fileno() == -1
    assert calling.send(Transmit(b"x", (SERVER4, 9))) is SendResult.FAILED
    assert calling.receive() == []
    assert calling.read_errors() == []
    assert calling.drops() == 0


@pytest.mark.parametrize("again", [True, False], ids=["added again", "control"])
def test_a_uvloop_reader_dies_of_an_icmp_error_unless_added_again(pair: Pair, again: bool) -> None:
    calling = pair.open(pair.left, "0.0.0.0")
    answering = pair.open(pair.right, "0.0.0.0", 4433)
    port = calling.local_address[1]
    heard: list[bytes] = []

    async def life() -> None:
        loop = asyncio.get_running_loop()
        error_came, answer_came = asyncio.Event(), asyncio.Event()
        seen = 0

        def readable() -> None:
            nonlocal seen
            heard.extend(datagram for burst in calling.receive() for datagram in burst.datagrams)
            if calling.read_errors():
                error_came.set()
            if heard:
                answer_came.set()
            if again and calling.error_wakeups != seen:
                seen = calling.error_wakeups
                loop.remove_reader(calling)
                loop.add_reader(calling, readable)

        loop.add_reader(calling, readable)
        calling.send(Transmit(b"to nobody", (SERVER4, 9)))
        await asyncio.wait_for(error_came.wait(), 30)
        answering.send(Transmit(b"hello", (CLIENT4, port)))
        with contextlib.nullcontext() if again else pytest.raises(TimeoutError):
            await asyncio.wait_for(answer_came.wait(), 30 if again else 0.5)
        loop.remove_reader(calling)

    uvloop.run(life())
    assert calling.counters.icmp_errors == 1
    assert heard == ([b"hello"] if again else [])
