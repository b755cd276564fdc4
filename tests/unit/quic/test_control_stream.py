"""GOAWAY found among the other frames of a control stream, however its bytes arrive."""

from __future__ import annotations

import pytest
from aioquic.h3.connection import FrameError, IdError
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.quic.control_stream import ControlStreamReader
from tests.sim.raw_peer import GOAWAY, frame, settings_frame, varint

STREAM = (
    b"\x00"
    + settings_frame({8: 1})
    + frame(0x21, b"\x07\x01\x00" * 50)
    + frame(GOAWAY, varint(400))
    + frame(0x0D, b"\x08")
    + frame(GOAWAY, varint(8))
)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_goaway_is_found_however_the_stream_is_cut(sizes: list[int]) -> None:
    reader = ControlStreamReader()
    position, index = 0, 0
    while position < len(STREAM):
        size = sizes[index % len(sizes)]
        reader.receive(STREAM[position : position + size])
        position, index = position + size, index + 1
    assert reader.goaway == 8


def test_the_latest_identifier_counts_and_may_stay_the_same() -> None:
    reader = ControlStreamReader()
    reader.receive(b"\x00" + frame(GOAWAY, varint(8)) + frame(GOAWAY, varint(8)))
    assert reader.goaway == 8


def test_a_stream_type_written_long_is_a_stream_type() -> None:
    reader = ControlStreamReader()
    reader.receive(b"\x40")
    reader.receive(b"\x00" + frame(GOAWAY, varint(4)))
    assert reader.goaway == 4


def test_an_identifier_that_grows_is_an_error() -> None:
    reader = ControlStreamReader()
    with pytest.raises(IdError):
        reader.receive(b"\x00" + frame(GOAWAY, varint(4)) + frame(GOAWAY, varint(8)))


@pytest.mark.parametrize("payload", [b"", b"\x40", b"\x04\x04", b"\x04" * 9])
def test_a_payload_that_is_not_one_identifier_is_an_error(payload: bytes) -> None:
    with pytest.raises(FrameError):
        ControlStreamReader().receive(b"\x00" + frame(GOAWAY, payload))


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_read_or_refused_and_little_is_kept(chunks: list[bytes]) -> None:
    reader = ControlStreamReader()
    try:
        for chunk in chunks:
            reader.receive(chunk)
            assert len(reader._buffer) <= 24
    except (FrameError, IdError):
        pass
