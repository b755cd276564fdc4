"""A run of packets is, to whoever does not ask, a list of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.packet_run import PacketRun, flatten, total_size


@st.composite
def runs(draw: st.DrawFn) -> tuple[PacketRun, list[bytes]]:
    """Return a run somewhere in a buffer, and the same packets as a list."""
    size, rows = draw(st.integers(1, 20)), draw(st.integers(1, 12))
    before, gap = draw(st.binary(max_size=9)), draw(st.binary(max_size=4))
    packets = [draw(st.binary(min_size=size, max_size=size)) for _ in range(rows)]
    data = before + gap.join(packets) + draw(st.binary(max_size=3))
    return PacketRun(data, size, rows, start=len(before), stride=size + len(gap)), packets


@given(runs(), st.integers(0, 12), st.integers(0, 12))
def test_a_run_is_the_sequence_of_its_packets(both: tuple[PacketRun, list[bytes]], first: int, stop: int) -> None:
    run, packets = both
    assert run == packets
    assert list(run) == packets
    assert [run[at] for at in range(-len(run), len(run))] == packets + packets
    part = run[first:stop]
    assert isinstance(part, PacketRun)
    assert part == packets[first:stop]
    assert (len(run), run.total, total_size(run)) == (len(packets), *[sum(map(len, packets))] * 2)
    assert flatten([run, [b"x"], run]) == [*packets, b"x", *packets]
    assert PacketRun.of(packets) == run
    assert PacketRun.of(run) is run


@given(runs(), st.integers(0, 19))
def test_columns_prefixes_and_arrays_are_those_of_the_packets(
    both: tuple[PacketRun, list[bytes]], at: int
) -> None:
    run, packets = both
    at %= run.size
    assert run.column(at) == bytes(packet[at] for packet in packets)
    assert run.without(at) == [packet[at:] for packet in packets]
    assert run.array().tolist() == [list(packet) for packet in packets]
    assert run.array(">u2", at).tolist() == [
        np.frombuffer(packet[at : at + (run.size - at) // 2 * 2], ">u2").tolist() for packet in packets
    ]
    for prefix in (packets[0][:at], packets[0] + b"x", b"\0"):
        assert run.all_begin_with(prefix) == all(packet.startswith(prefix) for packet in packets)


def test_what_is_said_of_a_flow_stays_with_its_parts_until_taken_back() -> None:
    run = PacketRun(bytes(40), 10, 4, is_flow=True)
    assert run[1:3].is_flow
    assert run.part(0, 2).is_flow
    assert not run.part(0, 2, is_flow=False).is_flow
    assert not run.without(2).is_flow
    assert repr(run) == "<PacketRun 4 of 10, one flow>"


def test_what_a_list_refuses_a_run_does() -> None:
    run = PacketRun(bytes(40), 10, 4)
    for index in (4, -5):
        with pytest.raises(IndexError):
            run[index]
    with pytest.raises(ValueError, match="no steps"):
        run[::2]
    with pytest.raises(TypeError):
        hash(run)
    assert run != [bytes(10)] * 3
    assert run != "four packets"
