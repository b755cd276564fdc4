import pytest
from aioquic.quic.packet import QuicErrorCode
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.multipath.code_points import MAX_PATH_ID
from qtunnel.quic.multipath.transport_parameter import check_offer, encode_parameter, find_parameter

OTHERS = bytes.fromhex("01 04 80007530") + bytes.fromhex("0e 01 08")


@given(st.integers(0, MAX_PATH_ID))
def test_mpq_06_the_value_is_found_among_others_and_0_is_one(value: int) -> None:
    assert find_parameter(OTHERS + encode_parameter(value) + OTHERS) == value


def test_mpq_01_without_it_the_peer_does_not_speak_multipath() -> None:
    assert find_parameter(OTHERS) is None
    assert find_parameter(b"") is None


@pytest.mark.parametrize(
    "data",
    [
        "3e 08 c000000100000000",  # 2^32
        "3e 02 01 00",  # a byte too many
        "3e 00",
        "3e 02 80 00",  # an integer of four bytes in two
        "3e 04 08",
        "3e 01 08 3e 01 08",
        "3e",
    ],
)
def test_mpq_02_a_value_that_cannot_be_is_refused(data: str) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        find_parameter(bytes.fromhex(data))
    assert caught.value.error_code == QuicErrorCode.TRANSPORT_PARAMETER_ERROR


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_none_or_our_error(data: bytes) -> None:
    try:
        value = find_parameter(data)
    except PeerProtocolError:
        return
    assert value is None or 0 <= value <= MAX_PATH_ID


@pytest.mark.parametrize(("peer", "local"), [(0, 4), (8, 0)])
def test_mpq_03_connection_ids_of_no_length_are_a_violation(peer: int, local: int) -> None:
    check_offer(peer_cid_size=1, local_cid_size=1)
    with pytest.raises(PeerProtocolError) as caught:
        check_offer(peer_cid_size=peer, local_cid_size=local)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_mpq_04_a_cipher_whose_nonce_is_too_short_is_refused() -> None:
    check_offer(peer_cid_size=8, local_cid_size=4, nonce_size=12)
    with pytest.raises(PeerProtocolError) as caught:
        check_offer(peer_cid_size=8, local_cid_size=4, nonce_size=11)
    assert caught.value.error_code == QuicErrorCode.TRANSPORT_PARAMETER_ERROR
