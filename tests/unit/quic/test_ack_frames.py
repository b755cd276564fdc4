from itertools import pairwise

import pytest
from aioquic._buffer import Buffer
from aioquic.quic.packet import pull_ack_frame
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.quic.ack_frames import decode_ack, decode_varint, encode_ack


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    at = draw(st.integers(0, 1 << 40))
    found = []
    for _ in range(draw(st.integers(1, 30))):
        last = at + draw(st.integers(0, 100))
        found.append((at, last))
        at = last + 2 + draw(st.integers(0, 100))
    return found[::-1]


@given(ranges(), st.integers(0, 1 << 20), st.none() | st.tuples(*[st.integers(0, 1 << 30)] * 3))
def test_what_was_encoded_is_decoded(
    sent: list[tuple[int, int]], delay: int, ecn: tuple[int, int, int] | None
) -> None:
    seconds = delay * 8 / 1_000_000
    data = b"xx" + encode_ack(sent, seconds, ecn=ecn) + b"rest"
    got, got_delay, got_ecn, end = decode_ack(data, 2, exponent=3)
    assert got == sent
    assert got_delay == pytest.approx(seconds, abs=1e-5)
    assert got_ecn == ecn
    assert data[end:] == b"rest"


@given(ranges())
def test_aioquic_reads_it_the_same(sent: list[tuple[int, int]]) -> None:
    rangeset, _ = pull_ack_frame(Buffer(data=encode_ack(sent, 0.001)[1:]))
    assert [(each.start, each.stop - 1) for each in rangeset] == sent[::-1]


@given(st.binary(max_size=60))
def test_any_bytes_are_an_ack_or_a_value_error(data: bytes) -> None:
    try:
        got, delay, _, end = decode_ack(b"\x02" + data, 0, exponent=3)
    except ValueError:
        return
    assert end <= len(data) + 1
    assert delay >= 0
    for first, last in got:
        assert 0 <= first <= last
    assert all(a[0] > b[1] + 1 for a, b in pairwise(got))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("c2197c5eff14e88c", 151288809941952652),
        ("9d7f3e7d", 494878333),
        ("7bbd", 15293),
        ("25", 37),
        ("4025", 37),
    ],
)
def test_hdg_23_all_widths_of_integers_are_read(data: str, value: int) -> None:
    assert decode_varint(bytes.fromhex(data), 0) == (value, len(data) // 2)
