"""Flows in a run of packets, against the rule of linux/coalescing.py, which looks at one packet at a time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.flow_runs import LEAST_FLOW, flow_runs
from qtunnel.linux.coalescing import coalesce
from qtunnel.packet_run import PacketRun, Packets, flatten
from tests.unit.linux.packets import ACK, PSH, V4, V6, datagrams, stream, tcp_segment

SIZE = 100


def flows(groups: list[Packets]) -> list[tuple[int, int]]:
    """Return first index and number of packets of what was found to be flows."""
    found, at = [], 0
    for group in groups:
        if isinstance(group, PacketRun):
            assert group.is_flow
            found.append((at, len(group)))
        at += len(group)
    return found


def tcp_packets(count: int, **fields: int) -> list[bytes]:
    return stream(bytes(SIZE * count), SIZE, **fields)  # type: ignore[arg-type]  # the keywords of tcp_segment


@pytest.mark.parametrize("addresses", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("make", [stream, datagrams])
def test_segments_of_a_stream_are_one_flow_as_long_as_they_are(addresses: tuple[str, str], make: object) -> None:
    packets = make(bytes(SIZE * 180), SIZE, addresses)  # type: ignore[operator]
    groups = flow_runs(PacketRun.of(packets))
    assert flows(groups) == [(0, 180)]
    assert flatten(groups) == packets


def test_few_packets_are_no_flow_and_one_more_is() -> None:
    packets = tcp_packets(LEAST_FLOW)
    assert flows(flow_runs(PacketRun.of(packets))) == [(0, LEAST_FLOW)]
    assert flow_runs(PacketRun.of(packets[1:])) == [packets[1:]]


def test_neighbouring_flows_and_what_is_between_them_keep_their_order() -> None:
    one, two = tcp_packets(20), tcp_packets(15, sequence=7)
    stray = tcp_packets(3, sequence=99)[1:]
    packets = [*one, *stray, *two]
    groups = flow_runs(PacketRun.of(packets))
    assert flows(groups) == [(0, 20), (22, 15)]
    assert flatten(groups) == packets


@pytest.mark.parametrize("at", [1, 12, 29])
def test_psh_ends_a_flow(at: int) -> None:
    packets = tcp_packets(30)
    packets[at] = tcp_segment(packets[at][40:], sequence=1000 + SIZE * at, identification=7 + at, flags=ACK | PSH)
    expected = [(0, at + 1), (at + 1, 29 - at)]
    assert flows(flow_runs(PacketRun.of(packets))) == [each for each in expected if each[1] >= LEAST_FLOW]


@st.composite
def packets_of_one_size(draw: st.DrawFn) -> list[bytes]:
    """Return pieces of flows, some damaged, doubled or moved."""
    packets: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 20))
        sequence = draw(st.sampled_from([0, 1000, 2**32 - 5 * SIZE]))
        identification = draw(st.sampled_from([0, 7, 65530]))
        flags = draw(st.sampled_from([ACK, ACK | PSH]))
        packets += tcp_packets(count, sequence=sequence, identification=identification, last_flags=flags)
    rng = random.Random(draw(st.integers(0, 1000)))
    for _ in range(draw(st.integers(0, 3))):
        at = rng.randrange(len(packets))
        match rng.randrange(3):
            case 0:
                packets.insert(at, packets[at])
            case 1:
                packets.append(packets.pop(at))
            case _:
                damaged = bytearray(packets[at])
                damaged[rng.randrange(40)] ^= 1 << rng.randrange(8)
                packets[at] = bytes(damaged)
    return packets


@given(packets_of_one_size())
def test_what_is_put_together_from_a_list_is_a_flow_in_a_run(packets: list[bytes]) -> None:
    """A flow may hold more: its transport checksums are not looked at, and it has no greatest length."""
    groups = flow_runs(PacketRun.of(packets), least=2)
    assert flatten(groups) == packets
    members = {(first, at) for first, count in flows(groups) for at in range(first, first + count)}
    of = {at: first for first, at in members}
    for together in coalesce(packets, least=2):
        inside = range(together.first, together.first + together.count)
        assert len({of[at] for at in inside}) == 1


@given(st.integers(1, 90), st.integers(1, 30), st.integers(0, 2**32))
def test_any_bytes_are_no_flow_and_lose_nothing(size: int, rows: int, seed: int) -> None:
    run = PacketRun(random.Random(seed).randbytes(size * rows), size, rows)
    assert flow_runs(run, least=2) == [list(run)]
