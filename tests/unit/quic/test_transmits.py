"""Datagrams joined for UDP_SEGMENT, and the addresses they go to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.burst import Address, Received, Transmit
from qtunnel.quic.transmits import MAX_BYTES, MAX_SEGMENTS, Batch, Edge, as_transmits, canonical
from tests.sim.quic_pair import split

A: Address = ("198.18.0.1", 1)
B: Address = ("198.18.0.2", 2)


def test_equal_sizes_to_one_address_are_joined_and_the_last_may_be_shorter() -> None:
    sent = [
        Batch(data, where)
        for data, where in [(b"a" * 10, A), (b"b" * 10, A), (b"c" * 4, A), (b"d" * 4, A), (b"e" * 10, B)]
    ]
    assert as_transmits(sent, {}, join=True) == [
        Transmit(b"a" * 10 + b"b" * 10 + b"c" * 4, A, segment_size=10),
        Transmit(b"d" * 4, A),
        Transmit(b"e" * 10, B),
    ]


def test_a_larger_datagram_begins_a_new_transmit() -> None:
    sent = [Batch(b"a" * 10, A), Batch(b"b" * 11, A)]
    assert [transmit.segment_size for transmit in as_transmits(sent, {}, join=True)] == [None, None]


def test_without_joining_every_datagram_is_alone() -> None:
    assert len(as_transmits([Batch(b"a", A)] * 5, {}, join=False)) == 5


def test_the_edge_says_how_the_address_is_written_and_where_to_send_from() -> None:
    raw: Address = ("2001:db8::1", 1, 0, 0)
    key = canonical(raw)
    edges = {key: Edge(raw, "2001:db8::2", 3)}
    assert as_transmits([Batch(b"a", key)], edges, join=True) == [Transmit(b"a", raw, "2001:db8::2", path_id=3)]
    assert edges[key].is_of(Received([b"x"], raw, "2001:db8::2", path_id=3))
    assert not edges[key].is_of(Received([b"x"], raw, "2001:db8::3", path_id=3))


@pytest.mark.parametrize(
    ("address", "same"),
    [
        (("198.18.0.1", 1), ("198.18.0.1", 1)),
        (("2001:db8::1", 1, 99, 0), ("2001:db8::1", 1)),
        (("fe80::1%eth0", 1, 5, 2), ("fe80::1", 1, 0, 2)),
    ],
)
def test_one_address_has_one_form(address: Address, same: Address) -> None:
    assert canonical(address) == same
    assert canonical(same) == same


@given(st.lists(st.tuples(st.integers(1, 3000), st.sampled_from([A, B])), max_size=200))
def test_joining_loses_and_reorders_nothing_and_keeps_the_limits(sent: list[tuple[int, Address]]) -> None:
    datagrams = [(bytes([index % 256]) * size, address) for index, (size, address) in enumerate(sent)]
    transmits = as_transmits([Batch(*each) for each in datagrams], {}, join=True)
    assert [(data, transmit.remote) for transmit in transmits for data in split(transmit)] == datagrams
    for transmit in transmits:
        assert len(split(transmit)) <= MAX_SEGMENTS
        assert len(transmit.data) <= MAX_BYTES


def test_a_batch_knows_its_datagrams() -> None:
    assert Batch(b"aaabbbc", A, 3).datagrams() == [b"aaa", b"bbb", b"c"]
    assert Batch(b"aaabbbc", A).datagrams() == [b"aaabbbc"]
