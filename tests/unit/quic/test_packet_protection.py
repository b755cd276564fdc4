import random

import pytest
from aioquic.quic.crypto import CryptoContext
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.packet_run import PacketRun
from qtunnel.quic.packet_protection import PACKET_NUMBER_SIZE, VECTOR_MIN, HeaderMask, PacketKeys

SUITES = [
    CipherSuite.AES_128_GCM_SHA256,
    CipherSuite.AES_256_GCM_SHA384,
    CipherSuite.CHACHA20_POLY1305_SHA256,
]
CID = b"\x01\x02\x03\x04"


def secret_of(suite: CipherSuite) -> bytes:
    return bytes(range(48 if suite is CipherSuite.AES_256_GCM_SHA384 else 32))


def keys(suite: CipherSuite = SUITES[0]) -> PacketKeys:
    return PacketKeys(suite, secret_of(suite))


def open_all(opener: PacketKeys, packets: list[bytes], first: int, path_id: int = 0) -> list[bytes | None]:
    at = 1 + len(CID)
    opened = []
    for number, (packet, (first_byte, truncated, bits)) in enumerate(
        zip(packets, opener.unmask(packets, len(CID)), strict=True), first
    ):
        assert truncated == number & 0xFFFF
        header = bytes((first_byte,)) + packet[1:at] + truncated.to_bytes(bits // 8)
        opened.append(opener.open(packet[at + bits // 8 :], header, number, path_id))
    return opened


def test_rfc_9001_a5_chacha20_short_header_packet() -> None:
    secret = bytes.fromhex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b")
    each = PacketKeys(CipherSuite.CHACHA20_POLY1305_SHA256, secret)
    packet = bytes.fromhex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb")
    number = 654360564
    (unmasked,) = each.unmask([packet], 0)
    first, truncated, bits = unmasked
    assert first == 0x42
    assert bits == 24
    assert truncated == number & 0xFFFFFF
    assert each.open(packet[4:], b"\x42" + truncated.to_bytes(3), number) == b"\x01"


def test_rfc_9001_a5_key_update_secret() -> None:
    secret = bytes.fromhex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b")
    updated = PacketKeys(CipherSuite.CHACHA20_POLY1305_SHA256, secret).update()
    assert updated._secret.hex() == "1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9"
    assert updated.key_phase == 1


def test_rfc_9001_a2_and_a3_masks() -> None:
    client_key = bytes.fromhex("9f50449e04a0e810283a1e9933adedd2")
    sample = bytes.fromhex("d1b1c98dd7689fb8ec11d242b123dc9b")
    assert HeaderMask(CipherSuite.AES_128_GCM_SHA256, client_key).masks(sample)[:5].hex() == "437b9aec36"


def test_mpq_09_the_nonce_has_the_path_id_above_the_packet_number() -> None:
    each = keys()
    each.iv = int("6b26114b9cba2b63a9e8dd4f", 16)
    assert (each.iv ^ 3 << 64 ^ 54321).to_bytes(12).hex() == "6b2611489cba2b63a9e8097e"
    (packet,) = each.seal([b"payload of path three"], 54321, CID, path_id=3)
    assert open_all(each, [packet], 54321, path_id=3) == [b"payload of path three"]
    assert open_all(each, [packet], 54321, path_id=0) == [None]


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_agrees_with_aioquic(suite: CipherSuite) -> None:
    other = CryptoContext()
    other.setup(cipher_suite=suite, secret=secret_of(suite), version=QuicProtocolVersion.VERSION_1)
    payload = b"a payload that is long enough"
    (packet,) = keys(suite).seal([payload], 77, CID)
    header, opened, number, _ = other.decrypt_packet(packet, 1 + len(CID), 77)
    assert (opened, number, header[1:5]) == (payload, 77, CID)
    assert other.encrypt_packet(b"\x41" + CID + (77).to_bytes(2), payload, 77) == packet


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("count", [1, VECTOR_MIN - 1, VECTOR_MIN, 46, 64])
def test_the_vector_way_gives_the_same_bytes_as_the_scalar_one(suite: CipherSuite, count: int) -> None:
    rng = random.Random(count)
    packets = [rng.randbytes(1400) for _ in range(count)]
    prefix = b"\x30\x00\x00"
    scalar = keys(suite).seal([prefix + packet for packet in packets], 65530, CID)
    assert keys(suite).seal_equal([packets], prefix, 65530, CID) == [b"".join(scalar)]
    in_parts = [packets[: count // 3], PacketRun.of(packets[count // 3 :])]
    apart = [b"".join(scalar[at : at + 5]) for at in range(0, count, 5)]
    assert keys(suite).seal_equal(in_parts, prefix, 65530, CID, together=5) == apart


def test_a_layout_is_used_again_for_another_prefix_and_other_numbers() -> None:
    each = keys()
    packets = [bytes([n]) * 100 for n in range(10)]
    for prefix, first in ((b"\x30\x00\x00", 5), (b"\x30\x04\x00", 1 << 40), (b"\x30\x40\x00\x00", 9)):
        scalar = keys().seal([prefix + packet for packet in packets], first, CID)
        assert each.seal_equal([packets], prefix, first, CID) == [b"".join(scalar)]


@given(st.lists(st.binary(min_size=2, max_size=60), min_size=1, max_size=20), st.integers(0, 2**62 - 100))
def test_what_was_sealed_opens(payloads: list[bytes], first: int) -> None:
    packets = keys().seal(payloads, first, CID)
    assert open_all(keys(), packets, first) == payloads


def test_one_bad_tag_costs_no_other_packet() -> None:
    payloads = [b"payload %d" % n for n in range(20)]
    packets = keys().seal(payloads, 0, CID)
    broken = bytearray(packets[7])
    broken[-1] ^= 1
    packets[7] = bytes(broken)
    opener = keys()
    expected: list[bytes | None] = list(payloads)
    expected[7] = None
    assert open_all(opener, packets, 0) == expected
    assert opener.failed == 1


def test_sealed_packets_are_counted_towards_the_limit() -> None:
    each = keys()
    each.seal([b"one", b"two"], 0, CID)
    each.seal_equal([[b"x" * 50] * 10], b"\x30\x00\x00", 2, CID)
    assert each.sealed == 12


def test_the_packet_number_has_two_bytes() -> None:
    (packet,) = keys().seal([b"some payload"], 3, CID)
    assert len(packet) == 1 + len(CID) + PACKET_NUMBER_SIZE + len(b"some payload") + 16
