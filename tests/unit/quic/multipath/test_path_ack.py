import pytest
from aioquic.quic.packet import QuicErrorCode
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.ack_frames import encode_ack
from qtunnel.quic.multipath.code_points import MAX_PATH_ID
from qtunnel.quic.multipath.path_ack import decode_any_ack, encode_path_ack

RANGES = [(90, 100), (50, 80), (3, 3)]


@given(st.integers(0, MAX_PATH_ID), st.none() | st.tuples(*[st.integers(0, 1 << 30)] * 3))
def test_what_was_encoded_is_decoded(path_id: int, ecn: tuple[int, int, int] | None) -> None:
    data = b"xx" + encode_path_ack(path_id, RANGES, 0.008, ecn=ecn) + b"rest"
    assert decode_any_ack(data, 2, exponent=3) == (path_id, RANGES, 0.008, ecn, len(data) - 4)


def test_it_looks_as_in_the_standard() -> None:
    assert encode_path_ack(5, [(7, 9)], 0.0) == bytes.fromhex("3e 05 09 00 00 02")
    assert encode_path_ack(5, [(7, 9)], 0.0, ecn=(1, 2, 3)) == bytes.fromhex("3f 05 09 00 00 02 01 02 03")


def test_mpq_08_an_ack_is_about_path_0() -> None:
    assert decode_any_ack(encode_ack(RANGES, 0.0), 0, exponent=3)[:2] == (0, RANGES)
    ecn = decode_any_ack(encode_ack(RANGES, 0.0, ecn=(1, 2, 3)), 0, exponent=3)
    assert ecn[3] == (1, 2, 3)


@given(st.sampled_from([b"\x3e", b"\x3f"]), st.binary(max_size=40))
def test_any_bytes_are_an_ack_or_an_error(kind: bytes, rest: bytes) -> None:
    data = kind + rest
    try:
        path_id, ranges, delay, _, end = decode_any_ack(data, 0, exponent=3)
    except (ValueError, PeerProtocolError):
        return
    assert 0 <= path_id <= MAX_PATH_ID
    assert ranges[-1][0] >= 0
    assert delay >= 0
    assert end <= len(data)


def test_mpq_24_a_path_id_of_more_than_32_bits_is_a_violation() -> None:
    data = b"\x3e" + (0xC000_0001_0000_0000).to_bytes(8) + bytes(4)
    with pytest.raises(PeerProtocolError) as caught:
        decode_any_ack(data, 0, exponent=3)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_another_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="acknowledges nothing"):
        decode_any_ack(b"\x01\x00\x00\x00\x00", 0, exponent=3)
