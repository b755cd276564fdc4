"""The simulated network itself, tried with toy machines."""

from __future__ import annotations

from collections import deque

import pytest

from qtunnel.burst import MAX_BURST, Address, Burst, Received, Transmit
from tests.sim.clock import VirtualClock
from tests.sim.link import Conditions, Fate
from tests.sim.pair import SimError, SimHost, SimNetwork

HERE: Address = ("198.51.100.1", 5000)
THERE: Address = ("192.0.2.1", 443)


class Wire:
    """A toy tunnel: a packet becomes a datagram to the last remote known, and back. No timers."""

    def __init__(self, remote: Address | None = None) -> None:
        self.remote = remote
        self.bursts: list[int] = []
        self._send: list[Transmit] = []
        self._write: list[bytes] = []
        self._events: deque[str] = deque()

    def receive_from_tun(self, burst: Burst) -> None:
        assert self.remote is not None
        self._send.extend(Transmit(packet, self.remote) for packet in burst.packets)

    def receive_from_udp(self, received: list[Received], now: float) -> None:
        for each in received:
            self.bursts.append(len(each.datagrams))
            if self.remote != each.remote:
                self._events.append(f"peer is at {each.remote[0]}")
                self.remote = each.remote
            self._write.extend(each.datagrams)

    def handle_timer(self, now: float) -> None:
        raise AssertionError("no timer was asked for")

    def get_timer(self) -> float | None:
        return None

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        taken, self._send = self._send, []
        return taken

    def packets_to_write(self) -> list[list[bytes]]:
        taken, self._write = self._write, []
        return [taken] if taken else []

    def next_event(self) -> str | None:
        return self._events.popleft() if self._events else None


class Ticker(Wire):
    """Sends one datagram a second, by its timer."""

    def __init__(self, remote: Address, first: float) -> None:
        super().__init__(remote)
        self.next = first
        self.ticks: list[float] = []

    def get_timer(self) -> float | None:
        return self.next

    def handle_timer(self, now: float) -> None:
        self.ticks.append(now)
        self.next = now + 1.0
        assert self.remote is not None
        self._send.append(Transmit(b"tick", self.remote))


def pair(seed: int = 1, **links: Conditions) -> tuple[SimNetwork, SimHost, SimHost]:
    network = SimNetwork(VirtualClock(), seed=seed)
    server = network.host("server", Wire(), THERE)
    client = network.host("client", Wire(THERE), HERE, **links)
    return network, client, server


def test_packets_cross_both_ways_and_arrive_as_one_burst() -> None:
    network, client, server = pair(up=Conditions(delay=0.01), down=Conditions(delay=0.02))
    client.write_to_tun([b"a", b"b", b"c"])
    network.run_until(lambda: len(server.written) == 3, timeout=1)
    assert server.written == [b"a", b"b", b"c"]
    assert server.machine.bursts == [3]
    server.write_to_tun([b"d"])
    network.run_until(lambda: client.written, timeout=1)
    assert network.clock.now == pytest.approx(1000.03)


def test_a_burst_is_never_longer_than_the_drivers() -> None:
    network, client, server = pair()
    client.write_to_tun([b"x"] * 150)
    network.run_until(lambda: len(server.written) == 150, timeout=1)
    assert max(server.machine.bursts) <= MAX_BURST


def test_events_are_kept_with_their_time_and_can_be_acted_on() -> None:
    network, client, server = pair(up=Conditions(delay=1.0))
    server.on_event = lambda event: server.machine.receive_from_tun(Burst([b"hello"], network.clock.now))
    client.write_to_tun([b"a"])
    network.run_until(lambda: client.written, timeout=2)
    assert server.events == [(1001.0, "peer is at 198.51.100.1")]
    assert client.written == [b"hello"]


def test_a_kernel_behind_the_tun_answers_and_the_rest_is_written() -> None:
    network, client, server = pair()
    server.kernel = lambda packet: b"pong" if packet == b"ping" else None
    client.write_to_tun([b"ping", b"a"])
    network.run_for(0.1)
    assert (client.written, server.written) == ([b"pong"], [b"a"])


def test_a_segmented_transmit_arrives_as_its_segments() -> None:
    network, client, server = pair()
    client.machine._send.append(Transmit(b"aabbc", THERE, segment_size=2))
    client.flush()
    network.run_for(0.1)
    assert server.written == [b"aa", b"bb", b"c"]


def test_a_timer_rings_at_its_time_and_is_set_again() -> None:
    network = SimNetwork(VirtualClock(), seed=1)
    server = network.host("server", Wire(), THERE)
    client = network.host("client", Ticker(THERE, first=1000.5), HERE)
    network.run_for(3.0)
    assert client.machine.ticks == [1000.5, 1001.5, 1002.5]
    assert len(server.written) == 3


def test_a_timer_that_never_moves_on_is_found_out() -> None:
    network = SimNetwork(VirtualClock(), seed=99)
    stuck = Ticker(THERE, first=1000.0)
    stuck.handle_timer = lambda now: None
    network.host("client", stuck, HERE)
    with pytest.raises(SimError, match=r"timer of client was due at once.*seed 99"):
        network.run_for(1.0)


def test_a_machine_that_always_has_something_to_send_is_found_out() -> None:
    _, client, _ = pair()
    client.machine.datagrams_to_send = lambda now: [Transmit(b"x", THERE)]
    with pytest.raises(SimError, match="on end"):
        client.flush()


def test_a_suspended_host_reads_its_socket_before_its_timer() -> None:
    network = SimNetwork(VirtualClock(), seed=1)
    order: list[str] = []
    machine = Ticker(THERE, first=1001.0)
    machine.handle_timer = lambda now: (order.append("timer"), setattr(machine, "next", now + 100))
    machine.receive_from_udp = lambda received, now: order.append(f"socket {len(received[0].datagrams)}")
    client = network.host("client", machine, HERE)
    server = network.host("server", Wire(HERE), THERE)
    client.suspend()
    server.write_to_tun([b"x", b"y"])
    network.run_for(10.0)
    assert order == []
    client.resume()
    assert order == ["socket 2", "timer"]


def test_a_moved_host_gets_nothing_at_its_old_address_and_sends_from_the_new() -> None:
    network, client, server = pair(down=Conditions(delay=0.5))
    client.write_to_tun([b"a"])
    network.run_for(0.1)
    server.write_to_tun([b"b"])
    client.move_to(("203.0.113.9", 6000))
    network.run_for(1.0)
    assert client.written == []
    assert network.unreachable == 1
    client.write_to_tun([b"c"])
    network.run_for(0.1)
    assert server.machine.remote == ("203.0.113.9", 6000)


def test_a_replaced_machine_knows_nothing_and_a_stopped_host_hears_nothing() -> None:
    network, client, server = pair()
    client.write_to_tun([b"a"])
    network.run_for(0.1)
    server.replace(None)
    client.write_to_tun([b"b"])
    network.run_for(0.1)
    server.replace(Wire())
    client.write_to_tun([b"c"])
    network.run_for(0.1)
    assert server.written == [b"a", b"c"]
    assert len(server.events) == 2


def test_an_address_family_without_a_local_address_is_unreachable() -> None:
    network, client, _ = pair()
    client.machine.remote = ("2001:db8::1", 443, 0, 0)
    client.write_to_tun([b"a"])
    assert network.unreachable == 1


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def run(seed: int) -> list[bytes]:
        network, client, server = pair(seed, up=Conditions(loss=0.3, reorder=0.2, duplicate=0.1, jitter=0.01))
        for number in range(200):
            client.write_to_tun([number.to_bytes(2, "big")])
            network.run_for(0.005)
        network.run_for(1.0)
        assert client.up.counts[Fate.LOST] > 20
        return server.written

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_waiting_in_vain_says_the_seed_and_what_was_seen() -> None:
    network, client, _ = pair(seed=4711, up=Conditions(loss=1.0))
    client.write_to_tun([b"a"])
    with pytest.raises(SimError, match=r"seed 4711(.|\n)*'lost'"):
        network.run_until(lambda: False, timeout=1)


def test_a_seeded_test_gets_a_seed(seed: int) -> None:
    assert seed >= 0


@pytest.mark.seeds(ci=3, long=5)
def test_a_seeded_test_may_ask_for_several(seed: int) -> None:
    assert seed >= 0
