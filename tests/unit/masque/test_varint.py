import pytest

from qtunnel.errors import LocalProtocolError
from qtunnel.masque.varint import MAX_VARINT, MAX_VARINT_LENGTH, decode_varint, encode_varint


# RFC 9000 appendix A.1
@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("c2197c5eff14e88c", 151_288_809_941_952_652),
        ("9d7f3e7d", 494_878_333),
        ("7bbd", 15_293),
        ("25", 37),
    ],
)
def test_the_examples_of_the_rfc(data: str, value: int) -> None:
    assert decode_varint(bytes.fromhex(data)) == (value, len(data) // 2)
    assert encode_varint(value).hex() == data


def test_an_encoding_longer_than_needed_is_read() -> None:
    assert decode_varint(bytes.fromhex("4025")) == (37, 2)


@pytest.mark.parametrize(
    ("value", "length"),
    [(0, 1), (63, 1), (64, 2), (16383, 2), (16384, 4), (2**30 - 1, 4), (2**30, 8), (MAX_VARINT, 8)],
)
def test_the_shortest_encoding_is_written(value: int, length: int) -> None:
    assert len(encode_varint(value)) == length


def test_the_largest_integer_fills_eight_bytes() -> None:
    assert MAX_VARINT == 2**62 - 1
    assert encode_varint(MAX_VARINT) == b"\xff" * MAX_VARINT_LENGTH


@pytest.mark.parametrize("value", [-1, MAX_VARINT + 1])
def test_a_number_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_varint(value)


def test_an_integer_that_is_not_whole_yet_is_none() -> None:
    assert decode_varint(b"") is None
    assert decode_varint(b"\x40") is None
    assert decode_varint(b"\x00", 1) is None
    assert decode_varint(bytes.fromhex("c2197c5eff14e8")) is None
