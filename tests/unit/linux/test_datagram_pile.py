"""Piles of datagrams: what goes on top, and what comes off again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.burst import Received
from qtunnel.linux.cmsg import AncillaryParser
from qtunnel.linux.datagram_pile import MIN_RUN, DatagramPile, as_received
from qtunnel.packet_run import PacketRun, flatten

REMOTE, OTHER = ("198.18.0.2", 443), ("198.18.0.3", 443)


def pile(segment: int, size: int, start: int = 0) -> DatagramPile:
    each = DatagramPile(start, segment, REMOTE, AncillaryParser())
    each.size = size
    return each


@given(st.integers(1, 9), st.integers(0, 200), st.integers(0, 5))
def test_datagrams_come_off_as_they_went_on(segment: int, size: int, start: int) -> None:
    data = bytes(range(256))
    expected = [data[at : min(at + segment, start + size)] for at in range(start, start + size, segment)]
    if size:
        assert flatten(pile(segment, size, start).datagrams(memoryview(data))) == expected


def test_many_are_a_run_with_the_short_last_one_apart_and_few_a_list() -> None:
    data = memoryview(bytes(1000))
    run, last = pile(10, 10 * MIN_RUN + 3).datagrams(data)
    assert isinstance(run, PacketRun)
    assert last == [bytes(3)]
    (few,) = pile(10, 10 * MIN_RUN - 3).datagrams(data)
    assert isinstance(few, list)
    assert len(few) == MIN_RUN


def test_an_empty_datagram_is_one() -> None:
    assert pile(0, 0).datagrams(memoryview(b"")) == [[b""]]


@pytest.mark.parametrize(
    ("size", "segment", "remote", "taken"),
    [
        (10, 10, REMOTE, True),
        (7, 7, REMOTE, True),
        (30, 10, REMOTE, True),
        (12, 12, REMOTE, False),
        (0, 0, REMOTE, False),
        (10, 10, OTHER, False),
    ],
)
def test_what_goes_on_a_pile(size: int, segment: int, remote: tuple[str, int], taken: bool) -> None:
    assert pile(10, 20).takes(size, segment, remote, AncillaryParser()) is taken


def test_nothing_goes_on_a_shorter_datagram_nor_on_another_mark_or_address() -> None:
    assert not pile(10, 27).takes(10, 10, REMOTE, AncillaryParser())
    marked, elsewhere = AncillaryParser(), AncillaryParser()
    marked.ecn, elsewhere.local = 3, bytes(4)
    assert not pile(10, 20).takes(10, 10, REMOTE, marked)
    assert not pile(10, 20).takes(10, 10, REMOTE, elsewhere)


def test_lists_of_one_sender_share_a_received_and_runs_have_their_own() -> None:
    data = memoryview(bytes(1000))
    few, also_few, many = pile(10, 20), pile(5, 15, 20), pile(10, 200, 35)
    other = DatagramPile(235, 10, OTHER, AncillaryParser())
    other.size = 10
    received = as_received([few, also_few, many, other], data, lambda packed: packed.hex(), 7)
    assert received == [
        Received([bytes(10)] * 2 + [bytes(5)] * 3, REMOTE, path_id=7),
        Received(PacketRun(bytes(200), 10, 20), REMOTE, path_id=7),
        Received([bytes(10)], OTHER, path_id=7),
    ]
