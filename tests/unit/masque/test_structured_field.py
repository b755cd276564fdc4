import pytest

from qtunnel.masque.structured_field import parse_boolean_item, serialize_string


@pytest.mark.parametrize(
    "parameters",
    [
        b"",
        b";a",
        b";a;b;a",
        b"; a=1",
        b";a=-1.5",
        b";a=tok/en:x",
        b';a="x; \\"y\\" \\\\"',
        b";a=:aGk=:",
        b";a=?0",
        b";a=@1700000000",
        b';a=%"caf%c3%a9"',
        b";*key_.-1=1",
        b"  ",
    ],
)
def test_parameters_are_ignored(parameters: bytes) -> None:
    assert parse_boolean_item([b"?1" + parameters]) is True
    assert parse_boolean_item([b"?0" + parameters]) is False


@pytest.mark.parametrize(
    "value",
    [
        b"?1 ;a",
        b"?1;",
        b"?1;A",
        b"?1;a=",
        b"?1;a=1.2345",
        b'?1;a="open',
        b'?1;a="bad \\x"',
        b"?1;a=:*:",
        b"?1;a=?2",
        b"?1, ?1",
        b"?1 ?1",
        b"?T",
        b"1",
        b"\t?1",
        b"?1" + b";a" * 600,
    ],
)
def test_what_is_no_boolean_item_is_absent(value: bytes) -> None:
    assert parse_boolean_item([value]) is None


def test_no_line_and_two_lines_are_absent() -> None:
    assert parse_boolean_item([]) is None
    assert parse_boolean_item([b"?1", b"?1"]) is None


def test_a_string_is_quoted_and_kept_to_printable_ascii() -> None:
    assert serialize_string('a "b" \\ é\n') == b'"a \\"b\\" \\\\ ??"'


def test_a_field_is_looked_at_up_to_1024_bytes() -> None:
    assert parse_boolean_item([b"?1;" + b"a" * 1021]) is True
    assert parse_boolean_item([b"?1;" + b"a" * 1022]) is None
