from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.burst import MAX_READ
from qtunnel.drops import DropCounts, DropReason
from qtunnel.quic.packet_queue import INTERVAL, TARGET, PacketQueue

PREFIX = b"\x00\x00"


def queue(max_packets: int = 100, max_bytes: int = 100_000, max_delay: float = 0.5) -> PacketQueue:
    return PacketQueue(DropCounts(), max_packets=max_packets, max_bytes=max_bytes, max_delay=max_delay)


def push(each: PacketQueue, packets: list[bytes], now: float = 0.0, largest: int = 1400) -> DropCounts:
    return each.push(PREFIX, packets, largest=largest, now=now)


def take(each: PacketQueue, count: int) -> list[bytes]:
    packets = [each.packets.popleft() for _ in range(count)]
    each.taken(count, sum(map(len, packets)))
    return packets


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
    assert list(each.packets) == [b"ok"]


def test_when_the_size_falls_what_no_longer_fits_is_counted() -> None:
    each = queue()
    push(each, [b"x" * 1400, b"small", b"y" * 1300])
    each.drop_larger_than(len(PREFIX) + 1300)
    assert list(each.packets) == [b"small", b"y" * 1300]
    assert each.bytes == 1305
    assert each.drops == {DropReason.DATAGRAM_TOO_LARGE: 1}


def test_packets_of_two_streams_keep_their_order_and_their_prefix() -> None:
    each = queue()
    push(each, [b"1"])
    each.push(b"other", [b"2", b"3"], largest=1400, now=0.0)
    each.push(b"other", [b"4"], largest=1400, now=1.0)
    assert each.head() == (PREFIX, 1)
    take(each, 1)
    assert each.head() == (b"other", 3)


def test_qdg_13_what_waited_too_long_is_dropped() -> None:
    each = queue(max_delay=0.5)
    push(each, [b"old", b"old"], now=0.0)
    push(each, [b"new"], now=0.4)
    each.control_delay(0.6)
    assert list(each.packets) == [b"new"]
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
    assert (len(each.packets), each.bytes) == (0, 0)


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
            taken += len(take(each, min(step[0], len(each.packets))))
    assert each.bytes == sum(map(len, each.packets))
    assert pushed == taken + len(each.packets) + sum(each.drops.values())
    if each.packets:
        assert each.head()[1] == len(each.packets)
