import pytest

from qtunnel.errors import PeerProtocolError
from qtunnel.masque.capsule import MAX_CAPSULE_LENGTH, Capsule, CapsuleParser, CapsuleType, encode_capsule


def test_a_capsule_is_type_length_and_value() -> None:
    assert encode_capsule(CapsuleType.ADDRESS_ASSIGN, b"abc") == b"\x01\x03abc"
    assert encode_capsule(0x17, bytes(64))[:3] == b"\x17\x40\x40"


def test_capsules_of_no_length_are_whole_at_once() -> None:
    parser = CapsuleParser()
    assert list(parser.receive_data(b"\x01\x00\x03\x00")) == [
        Capsule(CapsuleType.ADDRESS_ASSIGN, b""),
        Capsule(CapsuleType.ROUTE_ADVERTISEMENT, b""),
    ]


def test_no_data_is_no_capsule() -> None:
    parser = CapsuleParser()
    assert list(parser.receive_data(b"")) == []
    parser.receive_end()


def test_a_head_of_sixteen_bytes_may_come_byte_by_byte() -> None:
    parser = CapsuleParser()
    found = []
    for byte in bytes.fromhex("c000000000000001 c000000000000002 aabb 0100"):
        found += parser.receive_data(bytes((byte,)))
    assert [capsule.value for capsule in found] == [b"\xaa\xbb", b""]


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_a_list_capsule_above_the_bound_is_refused_before_its_value_comes(kind: int) -> None:
    parser = CapsuleParser()
    with pytest.raises(PeerProtocolError) as caught:
        list(parser.receive_data(encode_capsule(kind, bytes(MAX_CAPSULE_LENGTH + 1))[:6]))
    assert caught.value.error_code == 0x107


@pytest.mark.parametrize("kind", CapsuleType)
def test_a_capsule_at_the_bound_is_taken(kind: CapsuleType) -> None:
    value = bytes(MAX_CAPSULE_LENGTH)
    assert list(CapsuleParser().receive_data(encode_capsule(kind, value))) == [Capsule(kind, value)]


def test_buffered_is_what_waits_for_more() -> None:
    parser = CapsuleParser()
    list(parser.receive_data(b"\x40"))
    assert parser.buffered == 1
    list(parser.receive_data(b"\x01\x03ab"))
    assert parser.buffered == 2
    list(parser.receive_data(b"c"))
    assert parser.buffered == 0


@pytest.mark.parametrize(
    "data", [b"\x01", b"\x40", b"\x01\x02", b"\x01\x02a", b"\x17\x02a", b"\x00\x80\x02\x00\x00"]
)
def test_an_end_inside_a_capsule_is_malformed(data: bytes) -> None:
    parser = CapsuleParser()
    list(parser.receive_data(data))
    with pytest.raises(PeerProtocolError) as caught:
        parser.receive_end()
    assert caught.value.error_code == 0x10E
