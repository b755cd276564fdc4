import pytest
from aioquic.quic.packet import QuicErrorCode
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.multipath.code_points import MAX_PATH_ID, FrameType
from qtunnel.quic.multipath.frames import (
    Frame,
    MaxPathId,
    NewConnectionId,
    PathAbandon,
    PathCidsBlocked,
    PathsBlocked,
    PathStatus,
    RetireConnectionId,
    check_packet_type,
    decode_frame,
    encode_frame,
)

PATH_IDS = st.integers(0, MAX_PATH_ID)
NUMBERS = st.integers(0, (1 << 62) - 1)


@st.composite
def new_connection_ids(draw: st.DrawFn) -> NewConnectionId:
    sequence = draw(NUMBERS)
    return NewConnectionId(
        draw(PATH_IDS),
        sequence,
        draw(st.integers(0, sequence)),
        draw(st.binary(min_size=1, max_size=20)),
        draw(st.binary(min_size=16, max_size=16)),
    )


FRAMES = st.one_of(
    st.builds(PathAbandon, PATH_IDS, NUMBERS),
    st.builds(PathStatus, PATH_IDS, NUMBERS, st.booleans()),
    new_connection_ids(),
    st.builds(RetireConnectionId, PATH_IDS, NUMBERS),
    st.builds(MaxPathId, PATH_IDS),
    st.builds(PathsBlocked, PATH_IDS),
    st.builds(PathCidsBlocked, PATH_IDS, NUMBERS),
)


@given(FRAMES)
def test_what_was_encoded_is_decoded(frame: Frame) -> None:
    data = b"xx" + encode_frame(frame) + b"rest"
    got, end = decode_frame(data, 2)
    assert got == frame
    assert type(got) is type(frame)
    assert data[end:] == b"rest"


@given(FRAMES)
def test_a_frame_cut_short_anywhere_is_an_encoding_error(frame: Frame) -> None:
    data = encode_frame(frame)
    for size in range(len(data)):
        with pytest.raises(PeerProtocolError) as caught:
            decode_frame(data[:size])
        assert caught.value.error_code == QuicErrorCode.FRAME_ENCODING_ERROR


@given(st.sampled_from([0x18, 0x19, *FrameType]), st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_our_error(kind: int, rest: bytes) -> None:
    data = (kind.to_bytes(1) if kind < 0x40 else (0x4000 | kind).to_bytes(2)) + rest
    try:
        frame, end = decode_frame(data)
    except PeerProtocolError:
        return
    assert end <= len(data)
    assert decode_frame(encode_frame(frame))[0] == frame


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (PathAbandon(1, 0x3E76), "7e75 01 7e76"),
        (PathStatus(2, 5, True), "7e76 02 05"),
        (PathStatus(2, 6, False), "7e77 02 06"),
        (NewConnectionId(3, 1, 0, b"\xaa\xbb\xcc\xdd", bytes(16)), "7e78 03 01 00 04 aabbccdd" + "00" * 16),
        (RetireConnectionId(3, 0), "7e79 03 00"),
        (MaxPathId(16), "7e7a 10"),
        (PathsBlocked(8), "7e7b 08"),
        (PathCidsBlocked(4, 2), "7e7c 04 02"),
    ],
)
def test_frames_look_as_in_the_standard(frame: Frame, data: str) -> None:
    assert encode_frame(frame) == bytes.fromhex(data)


def test_mpq_22_connection_id_frames_of_path_0_are_those_of_rfc_9000_and_the_new_ones_are_read_too() -> None:
    issued = NewConnectionId(0, 2, 1, b"abcd", bytes(range(16)))
    assert encode_frame(issued)[:1] == b"\x18"
    assert encode_frame(RetireConnectionId(0, 2)) == b"\x19\x02"
    assert decode_frame(b"\x7e\x78\x00" + encode_frame(issued)[1:])[0] == issued
    assert decode_frame(b"\x7e\x79\x00\x02")[0] == RetireConnectionId(0, 2)


@pytest.mark.parametrize("kind", [kind for kind in FrameType if kind > 0x3F])
def test_mpq_24_mpq_38_a_path_id_of_more_than_32_bits_is_a_violation(kind: FrameType) -> None:
    data = (0x4000 | kind).to_bytes(2) + (0xC000_0001_0000_0000).to_bytes(8) + bytes(40)
    with pytest.raises(PeerProtocolError) as caught:
        decode_frame(data)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    "frame",
    [
        NewConnectionId(1, 0, 0, b"", bytes(16)),
        NewConnectionId(1, 0, 0, bytes(21), bytes(16)),
        NewConnectionId(1, 3, 4, b"abcd", bytes(16)),
    ],
)
def test_mpq_37_a_connection_id_that_cannot_be_is_an_encoding_error(frame: NewConnectionId) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        decode_frame(encode_frame(frame))
    assert caught.value.error_code == QuicErrorCode.FRAME_ENCODING_ERROR


def test_a_frame_type_in_a_longer_encoding_than_needed_is_a_violation() -> None:
    with pytest.raises(PeerProtocolError) as caught:
        decode_frame(bytes.fromhex("80003e7a 10"))
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("kind", list(FrameType))
def test_mpq_36_frames_belong_into_1_rtt_packets(kind: FrameType) -> None:
    check_packet_type(kind, is_one_rtt=True, is_negotiated=True)
    with pytest.raises(PeerProtocolError) as caught:
        check_packet_type(kind, is_one_rtt=False, is_negotiated=True)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("kind", list(FrameType))
def test_mpq_01_without_the_extension_its_frames_are_unknown_ones(kind: FrameType) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        check_packet_type(kind, is_one_rtt=True, is_negotiated=False)
    assert caught.value.error_code == QuicErrorCode.FRAME_ENCODING_ERROR
    check_packet_type(0x18, is_one_rtt=False, is_negotiated=False)
