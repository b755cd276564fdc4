import numpy as np
from aioquic.tls import CipherSuite
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.quic.multipath.code_points import MAX_PATH_ID
from qtunnel.quic.multipath.nonce import nonce, nonce_rows, path_iv
from qtunnel.quic.packet_protection import PacketKeys

IV = 0x6B26114B9CBA2B63A9E8DD4F


def test_mpq_09_the_vector_of_the_standard() -> None:
    assert nonce(IV, 3, 54321).hex() == "6b2611489cba2b63a9e8097e"


@given(st.integers(0, (1 << 96) - 1), st.integers(0, (1 << 62) - 1))
def test_mpq_09_on_path_0_it_is_the_nonce_of_rfc_9001(iv: int, number: int) -> None:
    assert nonce(iv, 0, number) == (iv ^ number).to_bytes(12)


@given(
    st.integers(0, (1 << 96) - 1),
    st.integers(0, MAX_PATH_ID),
    st.lists(st.integers(0, (1 << 62) - 1), min_size=1, max_size=20),
)
def test_a_burst_gets_the_same_nonces_as_its_packets(iv: int, path_id: int, numbers: list[int]) -> None:
    rows = nonce_rows(iv, path_id, np.array(numbers, dtype=np.uint64))
    assert [row.tobytes() for row in rows] == [nonce(iv, path_id, number) for number in numbers]


@given(
    st.tuples(st.integers(0, MAX_PATH_ID), st.integers(0, (1 << 62) - 1)),
    st.tuples(st.integers(0, MAX_PATH_ID), st.integers(0, (1 << 62) - 1)),
)
def test_two_packets_of_a_connection_never_share_a_nonce(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (nonce(IV, *one) == nonce(IV, *other)) == (one == other)


def test_mpq_09_packets_of_a_path_are_sealed_with_its_nonce() -> None:
    keys = PacketKeys(CipherSuite.AES_128_GCM_SHA256, bytes(range(32)))
    head = b"\x41abcd" + (7).to_bytes(2)
    (packet,) = keys.seal([b"hello, path"], 7, b"abcd", path_id=3)
    aead: AESGCM = keys._aead
    assert packet[7:] == aead.encrypt(nonce(keys.iv, 3, 7), b"hello, path", head)
    assert path_iv(keys.iv, 0) == keys.iv
