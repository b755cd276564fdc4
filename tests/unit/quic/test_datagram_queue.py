"""The queue of packets: bounded in number and age, never blocked by size."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.burst import MAX_READ
from qtunnel.drops import DropCounts, DropReason
from qtunnel.quic.datagram_queue import DatagramQueue


def queue(max_packets: int = 10, max_delay: float = 0.5) -> DatagramQueue:
    return DatagramQueue(max_packets=max_packets, max_delay=max_delay)


def push(target: DatagramQueue, packets: Iterable[bytes], now: float = 0.0, limit: int = 100) -> DropCounts:
    return target.push(b"\x00\x00", packets, max_payload=limit, now=now)


def take(target: DatagramQueue, count: int) -> list[bytes]:
    taken = [target.frames.popleft() for _ in range(count)]
    target.settle()
    return taken


def test_packets_come_out_in_order_with_their_prefix() -> None:
    q = queue()
    assert not push(q, [b"a", b"b"])
    assert not push(q, [b"c"])
    assert take(q, 3) == [b"\x00\x00a", b"\x00\x00b", b"\x00\x00c"]


def test_too_large_packets_are_dropped_and_the_others_kept() -> None:
    q = queue()
    assert push(q, [b"x" * 98, b"y" * 99, b"z"]) == {DropReason.DATAGRAM_TOO_LARGE: 1}
    assert [len(frame) for frame in q.frames] == [100, 3]
    assert q.drops == {DropReason.DATAGRAM_TOO_LARGE: 1}


def test_beyond_the_bound_the_newest_are_dropped() -> None:
    q = queue(max_packets=4)
    assert push(q, [b"1", b"2", b"3"]) == {}
    assert q.room == 1
    assert push(q, [b"4", b"5", b"6"]) == {DropReason.QUEUE_FULL: 2}
    assert q.room == 0
    assert [frame[-1:] for frame in q.frames] == [b"1", b"2", b"3", b"4"]


def test_there_is_room_for_a_read_if_all_of_it_fits_or_nothing_waits() -> None:
    q = queue(max_packets=MAX_READ + 2)
    push(q, [b"x"] * 2)
    assert q.has_room_for_read
    push(q, [b"x"])
    assert not q.has_room_for_read
    small = queue(max_packets=3)
    assert small.has_room_for_read
    push(small, [b"x"])
    assert not small.has_room_for_read


def test_what_waited_too_long_is_dropped() -> None:
    q = queue(max_delay=0.5)
    push(q, [b"old"] * 3, now=1.0)
    push(q, [b"new"], now=1.4)
    q.drop_old(1.5)
    assert len(q.frames) == 4
    q.drop_old(1.6)
    assert [frame[2:] for frame in q.frames] == [b"new"]
    assert q.drops == {DropReason.QUEUE_TOO_OLD: 3}


def test_age_is_counted_right_after_part_of_a_burst_was_sent() -> None:
    q = queue()
    push(q, [b"1", b"2", b"3"], now=1.0)
    push(q, [b"4", b"5"], now=2.0)
    take(q, 2)
    q.drop_old(2.0)
    assert [frame[2:] for frame in q.frames] == [b"4", b"5"]
    assert q.drops == {DropReason.QUEUE_TOO_OLD: 1}


def test_when_the_size_falls_what_no_longer_fits_is_dropped() -> None:
    q = queue()
    push(q, [b"x" * 90, b"small", b"y" * 90], now=1.0)
    push(q, [b"z" * 90], now=2.0)
    q.drop_larger_than(50)
    assert [frame[2:] for frame in q.frames] == [b"small"]
    assert q.drops == {DropReason.DATAGRAM_TOO_LARGE: 3}
    take(q, 1)
    assert q.room == 10


def test_clearing_counts_everything_for_one_reason() -> None:
    q = queue()
    push(q, [b"a", b"b"])
    q.clear(DropReason.NO_SESSION)
    assert not q.frames
    assert q.drops == {DropReason.NO_SESSION: 2}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.lists(st.integers(0, 120), max_size=8)),
            st.tuples(st.just("take"), st.integers(0, 5)),
            st.tuples(st.just("shrink"), st.integers(0, 120)),
            st.tuples(st.just("wait"), st.integers(0, 10)),
        ),
        max_size=30,
    )
)
def test_every_packet_is_sent_or_counted_or_still_there(steps: list[tuple[str, object]]) -> None:
    q, now, offered, sent = queue(max_packets=12), 0.0, 0, 0
    for action, value in steps:
        if isinstance(value, list):
            offered += len(value)
            push(q, [bytes(size) for size in value], now=now)
        elif isinstance(value, int) and action == "take":
            count = min(value, len(q.frames))
            sent += len(take(q, count))
        elif isinstance(value, int) and action == "shrink":
            q.drop_larger_than(value)
        elif isinstance(value, int):
            now += value / 10
            q.drop_old(now)
        assert offered == sent + len(q.frames) + q.drops.total()
        assert len(q.frames) <= 12
        assert all(count > 0 for count in q.drops.values())
