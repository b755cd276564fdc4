import pytest

from qtunnel.errors import PeerProtocolError
from qtunnel.masque.header_fields import FieldSection, parse_field_section

PSEUDO = (b":method", b":path")


def test_pseudo_header_fields_and_fields_are_divided() -> None:
    section = parse_field_section([(b":path", b"/"), (b"x", b"1"), (b"y", b""), (b"x", b"2")], PSEUDO)
    assert section == FieldSection({b":path": b"/"}, [(b"x", b"1"), (b"y", b""), (b"x", b"2")])
    assert section.values(b"x") == [b"1", b"2"]
    assert section.values(b"z") == []


@pytest.mark.parametrize("value", [b"a", b"a b\tc", b"\xff", b"!", b""])
def test_values_may_have_inner_space_and_any_high_byte(value: bytes) -> None:
    assert parse_field_section([(b"x", value)], PSEUDO).values(b"x") == [value]


@pytest.mark.parametrize("value", [b"a\r\nb", b"a\x00b", b"a\n", b"\x7f", b" a", b"a ", b"\ta", b" "])
def test_values_with_control_characters_or_outer_space_are_malformed(value: bytes) -> None:
    for name in (b"x", b":path"):
        with pytest.raises(PeerProtocolError) as caught:
            parse_field_section([(name, value)], PSEUDO)
        assert caught.value.error_code == 0x10E


@pytest.mark.parametrize(
    "headers",
    [
        [(b":path", b"/"), (b":path", b"/")],
        [(b"x", b"1"), (b":path", b"/")],
        [(b":status", b"200")],
        [(b"", b"x")],
    ],
)
def test_pseudo_header_fields_out_of_place_are_malformed(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(PeerProtocolError):
        parse_field_section(headers, PSEUDO)


def test_content_is_announced_by_length_or_type() -> None:
    parse_field_section([(b"x", b"1")], PSEUDO).check_no_content()
    for name in (b"content-length", b"content-type"):
        with pytest.raises(PeerProtocolError):
            parse_field_section([(name, b"0")], PSEUDO).check_no_content()
