"""The driver between a scripted core and socket pairs standing in for UDP and TUN."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from time import monotonic
from typing import Any

import pytest

from qtunnel.aio.driver import MAX_BLOCKED, Driver, PacketPort
from qtunnel.burst import MAX_READ, Address, Burst, Received, SendResult, Transmit
from qtunnel.drops import DropCounts, DropReason
from qtunnel.quic.packet_queue import PacketQueue

REMOTE: Address = ("192.0.2.1", 443)


class FakeCore:
    """Notes what it is given, and has what the test puts in."""

    def __init__(self) -> None:
        self.bursts: list[list[bytes]] = []
        self.received: list[bytes] = []
        self.order: list[str] = []
        self.timer: float | None = None
        self.outgoing: list[Transmit] = []
        self.packets: list[list[bytes]] = []
        self.has_room = True
        self.refused: list[int] = []
        self.stalls: list[float] = []
        self.too_big: list[tuple[int, bytes]] = []

    def receive_from_tun(self, burst: Burst) -> None:
        self.bursts.append(burst.packets)

    def receive_from_udp(self, received: list[Received], now: float) -> None:
        del now
        self.order.append("udp")
        for each in received:
            self.received += each.datagrams

    def handle_timer(self, now: float) -> None:
        del now
        self.order.append("timer")
        self.timer = None

    def get_timer(self) -> float | None:
        return self.timer

    def datagrams_to_send(self, now: float) -> list[Transmit]:
        del now
        outgoing, self.outgoing = self.outgoing, []
        return outgoing

    def packets_to_write(self) -> list[bytes]:
        packets, self.packets = self.packets, []
        return packets

    def next_event(self) -> Any:
        return None

    def on_stall(self, duration: float, now: float) -> None:
        del now
        self.order.append("stall")
        self.stalls.append(duration)

    def on_packet_too_big(self, remote: Address, mtu: int, quoted: bytes, now: float) -> None:
        del remote, now
        self.too_big.append((mtu, quoted))

    def on_refused(self, transmit: Transmit, now: float) -> None:
        del now
        self.refused.append(len(transmit.data))

    def has_room_for_read(self) -> bool:
        return self.has_room


class FakeUdp:
    """One end of a socket pair; result scripts what the kernel says."""

    def __init__(self) -> None:
        self.path_id = 0
        self.error_wakeups = 0
        self.local_address: Address = ("192.0.2.9", 5000)
        self.result = SendResult.SENT
        self.sent: list[bytes] = []
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def receive(self, max_datagrams: int = 64) -> list[Received]:
        datagrams = []
        while len(datagrams) < max_datagrams:
            try:
                datagrams.append(self._ours.recv(2000))
            except BlockingIOError:
                break
        return [Received(datagrams, REMOTE)] if datagrams else []

    def send(self, transmit: Transmit) -> SendResult:
        if self.result is SendResult.SENT:
            self.sent.append(transmit.data)
        return self.result

    def read_errors(self) -> list[Any]:
        return []

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


class FakeTun:
    """A TUN whose packets the test writes at the other end; segments: how many each is read as."""

    def __init__(self) -> None:
        self.segments = 1
        self.kept: list[bytes] = []
        self.taken: int | None = None
        self.written: list[bytes] = []
        self.detached = False
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def read_burst(self) -> list[list[bytes]]:
        packets, self.kept = self.kept, []
        while len(packets) < 64:
            try:
                packets += [self._ours.recv(2000)] * self.segments
            except BlockingIOError:
                break
        return [packets] if packets else []

    @property
    def has_more(self) -> bool:
        return bool(self.kept)

    def write_burst(self, packets: list[bytes]) -> int:
        taken = len(packets) if self.taken is None else min(self.taken, len(packets))
        self.written += packets[:taken]
        return taken

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


class QueueingCore(FakeCore):
    """Puts what it is given into a real queue, and sends nothing of it."""

    def __init__(self, max_packets: int) -> None:
        super().__init__()
        self.queue = PacketQueue(DropCounts(), max_packets=max_packets, max_bytes=1_000_000, max_delay=0.5)

    def receive_from_tun(self, burst: Burst) -> None:
        super().receive_from_tun(burst)
        self.queue.push(b"", burst.packets, largest=1400, now=0.0)

    def has_room_for_read(self) -> bool:
        return self.queue.has_room_for_read


class Bench:
    def __init__(self, core: FakeCore | None = None) -> None:
        self.core, self.udp, self.tun = core or FakeCore(), FakeUdp(), FakeTun()
        self.driver = Driver(self.core, sockets=[self.udp], on_events=lambda: None, tun=self.tun)

    def close(self) -> None:
        self.driver.close()
        self.udp.close()
        self.tun.close()


@pytest.fixture
async def bench() -> Any:
    bench = Bench()
    yield bench
    bench.close()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_waits_in_the_tun_is_one_burst(bench: Bench) -> None:
    for number in range(5):
        bench.tun.theirs.send(b"packet %d" % number)
    bench.driver.start()
    await turns()
    assert bench.core.bursts == [[b"packet %d" % number for number in range(5)]]


async def test_datagrams_reach_the_core_and_its_packets_the_tun(bench: Bench) -> None:
    bench.driver.start()
    bench.udp.theirs.send(b"datagram")
    bench.core.packets = [[b"inner"]]
    await turns()
    assert bench.core.received == [b"datagram"]
    assert bench.tun.written == [b"inner"]


async def test_the_tun_is_not_read_while_the_core_has_no_room(bench: Bench) -> None:
    bench.core.has_room = False
    bench.tun.theirs.send(b"waits")
    bench.driver.start()
    await turns()
    assert bench.core.bursts == []
    bench.core.has_room = True
    bench.driver.flush()
    await turns()
    assert bench.core.bursts == [[b"waits"]]


async def test_a_nearly_full_queue_leaves_a_whole_read_in_the_tun() -> None:
    core = QueueingCore(max_packets=2 * MAX_READ - 1)
    with closing(Bench(core)) as bench:
        bench.tun.segments = MAX_READ
        bench.driver.start()
        bench.tun.theirs.send(b"first")
        await turns()
        bench.tun.theirs.send(b"second")
        await turns()
        assert core.bursts == [[b"first"] * MAX_READ]
        core.queue.take()
        bench.driver.flush()
        await turns()
        assert core.bursts == [[b"first"] * MAX_READ, [b"second"] * MAX_READ]
        assert not core.queue.drops


async def test_a_queue_smaller_than_a_read_is_filled_when_empty() -> None:
    core = QueueingCore(max_packets=3)
    with closing(Bench(core)) as bench:
        bench.tun.theirs.send(b"first")
        bench.driver.start()
        await turns()
        bench.tun.theirs.send(b"second")
        await turns()
        assert core.bursts == [[b"first"]]
        core.queue.clear(DropReason.QUEUE_TOO_OLD)
        bench.driver.flush()
        await turns()
        assert core.bursts == [[b"first"], [b"second"]]


async def test_a_full_socket_keeps_order_and_stops_the_tun_until_it_is_writable(bench: Bench) -> None:
    bench.udp.result = SendResult.WOULD_BLOCK
    bench.core.outgoing = [Transmit(b"%d" % number, REMOTE) for number in range(3)]
    bench.tun.theirs.send(b"waits")
    bench.driver.start()
    assert bench.udp.sent == []
    bench.udp.result = SendResult.SENT
    await turns()
    assert bench.udp.sent == [b"0", b"1", b"2"]
    assert bench.core.bursts == [[b"waits"]]


async def test_what_a_full_socket_cannot_keep_is_counted(bench: Bench) -> None:
    bench.udp.result = SendResult.WOULD_BLOCK
    bench.core.outgoing = [Transmit(b"x", REMOTE) for _ in range(MAX_BLOCKED + 5)]
    bench.driver.start()
    assert bench.driver.drops == {DropReason.UDP_BLOCKED: 5}


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (SendResult.TOO_BIG, DropReason.UDP_TOO_BIG),
        (SendResult.UNREACHABLE, DropReason.UDP_SEND),
        (SendResult.FAILED, DropReason.UDP_SEND),
    ],
)
async def test_what_the_kernel_refuses_is_counted_by_reason(
    bench: Bench, result: SendResult, reason: DropReason
) -> None:
    bench.udp.result = result
    bench.core.outgoing = [Transmit(b"x", REMOTE)]
    bench.driver.start()
    assert bench.driver.drops == {reason: 1}
    assert bench.core.refused == ([1] if result is SendResult.TOO_BIG else [])


async def test_packets_the_tun_refuses_are_counted(bench: Bench) -> None:
    bench.tun.taken = 1
    bench.core.packets = [[b"a", b"b", b"c"], [b"d"]]
    bench.driver.start()
    assert bench.driver.drops == {DropReason.TUN_WRITE: 2}


async def test_a_datagram_of_a_family_without_socket_is_counted(bench: Bench) -> None:
    bench.core.outgoing = [Transmit(b"x", ("2001:db8::1", 443, 0, 0))]
    bench.driver.start()
    assert bench.driver.drops == {DropReason.UDP_SEND: 1}


async def test_after_a_stall_what_has_arrived_is_heard_before_time_judges(bench: Bench) -> None:
    bench.driver.start()
    bench.core.timer = monotonic() - 1.0
    bench.udp.theirs.send(b"arrived meanwhile")
    bench.driver._arm(bench.core.timer)
    bench.driver._timer_due()
    assert bench.core.order == ["stall", "udp", "timer"]
    assert bench.core.stalls == [pytest.approx(1.0, abs=0.5)]
    assert bench.driver.late_wake_ups == 1
    assert bench.driver.longest_stall >= 1.0


async def test_a64_how_late_the_timer_came_is_in_the_status(bench: Bench) -> None:
    bench.driver.start()
    bench.core.timer = monotonic() - 0.02
    bench.driver._arm(bench.core.timer)
    bench.driver._timer_due()
    status = bench.driver.status()
    assert status["wake_ups"] == 1
    assert 20 <= status["lateness_max_ms"] < 10_000
    assert status["stalls"] == bench.driver.late_wake_ups


async def test_a64_datagrams_that_wait_for_a_full_socket_are_its_limit(bench: Bench) -> None:
    bench.udp.result = SendResult.WOULD_BLOCK
    bench.core.outgoing = [Transmit(b"x", REMOTE)]
    bench.driver.health.due = 0.0
    bench.driver.start()
    assert bench.driver.status()["limits"] == {"socket-buffer": 0.01}


async def test_a_timer_calls_the_core_once_and_never_early(bench: Bench) -> None:
    bench.core.timer = monotonic() + 60
    bench.driver.start()
    early: list[float] = []
    calls = 0
    due = 0.0

    def handle_timer(now: float) -> None:
        nonlocal due, calls
        calls += 1
        early.append(due - now)
        due = bench.core.timer = now + 0.0003  # no whole number of milliseconds

    bench.core.handle_timer = handle_timer  # type: ignore[method-assign]
    due = bench.core.timer = monotonic() + 0.0003
    bench.driver.flush()
    while calls < 50:
        await turns()
    bench.core.timer = None
    bench.driver.flush()
    assert max(early) <= 0


async def test_a_timer_that_is_put_off_comes_when_it_is_due_then(bench: Bench) -> None:
    bench.core.timer = monotonic() + 0.002
    bench.driver.start()
    due = bench.core.timer = monotonic() + 0.05
    bench.driver.flush()
    while "timer" not in bench.core.order:
        await turns()
    assert monotonic() >= due


async def test_a_reader_is_added_again_after_an_error(bench: Bench) -> None:
    bench.driver.start()
    asyncio.get_running_loop().remove_reader(bench.udp.fileno())  # what libuv does after POLLERR
    bench.udp.error_wakeups += 1
    bench.driver._udp_readable(bench.udp)
    bench.udp.theirs.send(b"heard")
    await turns()
    assert bench.core.received == [b"heard"]


async def test_nothing_is_called_after_close(bench: Bench) -> None:
    bench.driver.start()
    bench.driver.close()
    bench.udp.theirs.send(b"late")
    bench.tun.theirs.send(b"late")
    bench.driver.send_packets([b"late"])
    await turns()
    assert bench.core.received == []
    assert bench.core.bursts == []


async def test_a_packet_port_is_bounded_and_keeps_the_newest() -> None:
    port = PacketPort(max_packets=3)
    port.write_burst([b"%d" % number for number in range(5)])
    assert await port.receive() == [b"2", b"3", b"4"]
    assert port.dropped == 2


async def test_a_packet_port_wakes_its_reader_and_ends_empty() -> None:
    port = PacketPort()
    reader = asyncio.create_task(port.receive())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task"):
        await port.receive()
    port.write_burst([b"x"])
    assert await reader == [b"x"]
    port.close()
    assert await port.receive() == []


async def test_a_tun_that_was_deleted_is_not_read_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptor stays readable, so the loop would do nothing else."""
    reads = 0

    def read_burst() -> list[list[bytes]]:
        nonlocal reads
        reads += 1
        bench.tun.detached = True
        return []

    monkeypatch.setattr(bench.tun, "read_burst", read_burst)
    bench.tun.theirs.send(b"never taken")
    bench.driver.start()
    await turns(20)
    bench.driver.flush()
    await turns(20)
    assert reads == 1


async def test_what_a_read_left_is_taken_without_the_descriptor_and_only_when_there_is_room(bench: Bench) -> None:
    bench.driver.start()
    bench.core.has_room = False
    bench.tun.kept = [b"kept"]
    bench.driver.flush()
    await turns()
    assert bench.core.bursts == []
    bench.core.has_room = True
    bench.driver.flush()
    bench.driver.flush()
    await turns()
    assert bench.core.bursts == [[b"kept"]]


async def test_what_a_read_left_stays_when_the_room_went_before_its_turn(bench: Bench) -> None:
    bench.driver.start()
    bench.tun.kept = [b"kept"]
    bench.driver.flush()
    bench.core.has_room = False
    bench.driver.flush()
    await turns()
    assert bench.core.bursts == []
    assert bench.tun.kept == [b"kept"]
