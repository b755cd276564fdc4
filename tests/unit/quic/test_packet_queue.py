from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.burst import MAX_READ
from qtunnel.drops import DropCounts, DropReason
from qtunnel.packet_run import PacketRun, flatten
from qtunnel.quic.packet_queue import INTERVAL, TARGET, PacketQueue

PREFIX = b"\x00\x00"


def queue(max_packets: int = 100, max_bytes: int = 100_000, max_delay: float = 0.5) -> PacketQueue:
    return PacketQueue(DropCounts(), max_packets=max_packets, max_bytes=max_bytes, max_delay=max_delay)


def push(each: PacketQueue, packets: list[bytes], now: float = 0.0, largest: int = 1400) -> DropCounts:
    return each.push(PREFIX, packets, largest=largest, now=now)


def take(each: PacketQueue, count: int) -> list[bytes]:
    return [each.take() for _ in range(count)]


def rest(each: PacketQueue) -> list[bytes]:
    """Take what is left."""
    return take(each, each.packets)


def test_first_in_first_out() -> None:
    each = queue()
    push(each, [b"1", b"2"])
    push(each, [b"3"])
    assert take(each, 3) == [b"1", b"2", b"3"]
    assert each.bytes == 0


def test_qdg_12_the_number_and_the_bytes_are_bounded_and_what_is_over_is_counted() -> None:
    each = queue(max_packets=3)
    assert push(each, [b"x"] * 5) == {DropReason.QUEUE_FULL: 2}
    assert each.room == 0
    other = queue(max_bytes=100)
    push(other, [b"x" * 60] * 2)
    assert other.room == 0
    assert each.drops == {DropReason.QUEUE_FULL: 2}


def test_there_is_room_for_a_read_if_all_of_it_fits_or_nothing_waits() -> None:
    each = queue(max_packets=MAX_READ + 2)
    push(each, [b"x"] * 2)
    assert each.has_room_for_read
    push(each, [b"x"])
    assert not each.has_room_for_read
    small = queue(max_packets=3)
    assert small.has_room_for_read
    push(small, [b"x"])
    assert not small.has_room_for_read
    heavy = queue(max_packets=1000, max_bytes=100)
    push(heavy, [b"x" * 99])
    assert heavy.has_room_for_read
    push(heavy, [b"x"])
    assert not heavy.has_room_for_read


def test_too_large_packets_do_not_stop_the_others() -> None:
    each = queue()
    assert push(each, [b"x" * 1401, b"ok"]) == {DropReason.DATAGRAM_TOO_LARGE: 1}
    assert rest(each) == [b"ok"]


def test_when_the_size_falls_what_no_longer_fits_is_counted() -> None:
    each = queue()
    push(each, [b"x" * 1400, b"small", b"y" * 1300])
    each.drop_larger_than(len(PREFIX) + 1300)
    assert each.bytes == 1305
    assert rest(each) == [b"small", b"y" * 1300]
    assert each.drops == {DropReason.DATAGRAM_TOO_LARGE: 1}


def test_packets_of_two_streams_keep_their_order_and_their_prefix() -> None:
    each = queue()
    push(each, [b"1"])
    each.push(b"other", [b"2", b"3"], largest=1400, now=0.0)
    each.push(b"other", [b"4"], largest=1400, now=1.0)
    assert each.prefix == PREFIX
    assert take(each, 1) == [b"1"]
    assert each.prefix == b"other"
    assert flatten(each.take_equal(9)) == [b"2", b"3", b"4"]


def test_qdg_13_what_waited_too_long_is_dropped() -> None:
    each = queue(max_delay=0.5)
    push(each, [b"old", b"old"], now=0.0)
    push(each, [b"new"], now=0.4)
    each.control_delay(0.6)
    assert rest(each) == [b"new"]
    assert each.drops == {DropReason.QUEUE_TOO_OLD: 2}


def test_a_short_burst_is_left_alone() -> None:
    each = queue()
    push(each, [b"x"] * 50, now=0.0)
    each.control_delay(TARGET / 2)
    each.control_delay(TARGET * 2)
    assert each.drops == {}


def test_a_standing_queue_loses_more_and_more_from_its_front() -> None:
    each = queue(max_packets=10_000)
    now = 0.0
    dropped = []
    for _ in range(1000):
        push(each, [b"x"] * 2, now=now)
        take(each, 1)
        each.control_delay(now)
        dropped.append(each.drops[DropReason.QUEUE_DELAY])
        now += 0.002
    assert dropped[int((INTERVAL + TARGET) / 0.002) - 2] == 0
    first, second = dropped[500] - dropped[250], dropped[999] - dropped[749]
    assert 0 < first < second


def test_an_empty_queue_forgets_what_was() -> None:
    each = queue()
    each.control_delay(1.0)
    push(each, [b"x"], now=1.0)
    each.control_delay(1.0)
    each.clear(DropReason.NO_SESSION)
    assert each.drops == {DropReason.NO_SESSION: 1}
    assert (each.packets, each.bytes) == (0, 0)


@given(st.lists(st.one_of(st.integers(1, 30), st.tuples(st.integers(0, 30))), max_size=40))
def test_bytes_and_numbers_add_up(steps: list[int | tuple[int]]) -> None:
    each = queue(max_packets=50, max_bytes=2000)
    pushed = taken = 0
    now = 0.0
    for step in steps:
        now += 0.01
        if isinstance(step, int):
            pushed += step
            push(each, [b"x" * (n * 7 % 90 + 1) for n in range(step)], now=now)
        else:
            each.control_delay(now)
            taken += len(take(each, min(step[0], each.packets)))
    assert pushed == taken + each.packets + sum(each.drops.values())
    waiting = each.bytes
    assert waiting == sum(map(len, rest(each)))
    assert (each.packets, each.bytes) == (0, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"bc"]), st.integers(1, 3), st.integers(1, 12), st.booleans()),
        max_size=12,
    ),
    st.integers(1, 40),
)
def test_packets_taken_together_have_one_size_and_one_prefix_and_lose_no_place(
    groups: list[tuple[bytes, int, int, bool]], most: int
) -> None:
    each = queue(max_packets=1000)
    expected: list[tuple[bytes, bytes]] = []
    for number, (prefix, size, count, as_run) in enumerate(groups):
        packets = [bytes([number]) * size] * count
        each.push(prefix, PacketRun.of(packets) if as_run else packets, largest=100, now=0.0)
        expected += [(prefix, packet) for packet in packets]
    taken: list[tuple[bytes, bytes]] = []
    while each.packets:
        size, prefix = each.first_size, each.prefix
        together = flatten(each.take_equal(most))
        assert {len(packet) for packet in together} == {size}
        taken += [(prefix, packet) for packet in together]
        at = len(taken)
        full = len(together) == most
        follows = at < len(expected) and (expected[at][0], len(expected[at][1])) == (prefix, size)
        assert full or not follows
    assert taken == expected
    assert each.bytes == 0


def test_a_run_stays_a_run_when_a_part_of_it_is_taken() -> None:
    each = queue()
    each.push(PREFIX, PacketRun(bytes(1000), 100, 10), largest=100, now=0.0)
    (first,) = each.take_equal(4)
    (second,) = each.take_equal(99)
    assert isinstance(first, PacketRun)
    assert isinstance(second, PacketRun)
    assert (len(first), len(second)) == (4, 6)


def test_a_run_too_large_is_dropped_whole() -> None:
    each = queue()
    run = PacketRun(bytes(1000), 100, 10)
    assert each.push(PREFIX, run, largest=99, now=0.0) == {DropReason.DATAGRAM_TOO_LARGE: 10}
    each.push(PREFIX, run, largest=100, now=0.0)
    each.drop_larger_than(101)
    assert each.packets == 0
    assert each.drops == {DropReason.DATAGRAM_TOO_LARGE: 20}
