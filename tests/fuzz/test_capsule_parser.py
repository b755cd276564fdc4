"""Any bytes, cut in any way, give the same events or the same error of ours, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qtunnel.config import PeerQuirks
from qtunnel.errors import PeerProtocolError
from qtunnel.masque.address_capsules import (
    AddressRange,
    AssignedAddress,
    RequestedAddress,
    decode_address_assign,
    decode_address_request,
    decode_route_advertisement,
    encode_address_assign,
    encode_address_request,
    encode_route_advertisement,
)
from qtunnel.masque.capsule import CapsuleParser, CapsuleType, encode_capsule
from qtunnel.masque.events import AddressesRequested, PacketsInCapsules, SessionEnded, SessionEvent
from qtunnel.masque.session import Session
from qtunnel.masque.varint import MAX_VARINT, decode_varint, encode_varint
from tests.fuzz.masque_values import cuts, prefixes, ranges, request_ids, result_or_error

MAX_CAPSULE = 96
"""Small, so that a random length is on either side of it."""


@dataclass
class Outcome:
    """What a session made of its stream; packets are listed one by one, as their grouping follows the pieces."""

    events: list[SessionEvent | bytes]
    error_code: int | None
    drops: dict[str, int]


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """An address entry that is nearly right, so that the checks behind the first ones are reached."""
    return (
        encode_varint(draw(st.integers(0, 3)))
        + draw(st.sampled_from([b"\x04", b"\x06", b"\x05"]))
        + draw(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16) | st.just(bytes(4)))
        + draw(st.sampled_from([b"\x20", b"\x80", b"\x00", b"\x18", b"\xff"]))
    )


@st.composite
def capsules(draw: st.DrawFn) -> bytes:
    """A capsule of known or unknown type whose value is right, nearly right, or noise."""
    kind = draw(st.sampled_from([0, 0, 1, 1, 2, 2, 3, 3, 4, 0x17, 0x1ACE79EC]))
    values: dict[int, st.SearchStrategy[bytes]] = {
        0: st.binary(max_size=12).map(lambda data: b"\x00" + data),
        1: st.lists(prefixes(), max_size=3).map(
            lambda found: encode_address_assign([AssignedAddress(0, prefix) for prefix in found])
        ),
        2: st.lists(st.tuples(request_ids, prefixes()), min_size=1, max_size=3).map(
            lambda found: encode_address_request([RequestedAddress(*entry) for entry in found])
        ),
        3: ranges().map(encode_route_advertisement),
    }
    noise = st.binary(max_size=MAX_CAPSULE + 8) | st.lists(entries(), max_size=3).map(b"".join)
    value = draw(values[kind] | noise if kind in values else noise)
    return encode_capsule(kind, value)


streams = st.lists(capsules() | st.binary(max_size=3), max_size=8).map(b"".join) | st.binary(max_size=300)


def run(pieces: list[bytes], quirks: PeerQuirks, *, end: bool) -> Outcome:
    session = Session(is_client=True, quirks=quirks, max_capsule=MAX_CAPSULE)
    session.request_addresses([IPv4Interface("0.0.0.0/32"), IPv6Interface("::/128")])
    outcome = Outcome([], None, {})
    for index, piece in enumerate(pieces):
        try:
            session.receive_stream_data(piece, end and index == len(pieces) - 1)
        except PeerProtocolError as error:
            assert outcome.error_code is None, "bytes after an error are ignored"
            outcome.error_code = error.error_code
        while (event := session.next_event()) is not None:
            outcome.events += event.packets if isinstance(event, PacketsInCapsules) else [event]
            if isinstance(event, AddressesRequested):
                session.answer_requests(event.requests, ())
    outcome.drops = {str(reason): count for reason, count in session.drops.items()}
    return outcome


@given(st.data(), streams, st.sampled_from(PeerQuirks), st.booleans())
def test_any_bytes_in_any_pieces_give_the_same_events_or_error(
    data: st.DataObject, stream: bytes, quirks: PeerQuirks, end: bool
) -> None:
    whole = run([stream], quirks, end=end)
    assert run(data.draw(cuts(stream)), quirks, end=end) == whole
    assert whole.error_code in (None, 0x10E, 0x107)
    ended = [event for event in whole.events if isinstance(event, SessionEnded)]
    assert len(ended) == (1 if end or whole.error_code else 0)
    assert [event.clean for event in ended] == [whole.error_code is None] * len(ended)


@given(st.data(), streams)
def test_the_parser_never_holds_more_than_one_bounded_capsule(data: st.DataObject, stream: bytes) -> None:
    parser = CapsuleParser(max_length=MAX_CAPSULE)
    for piece in data.draw(cuts(stream)):
        outcome = result_or_error(lambda piece=piece: list(parser.receive_data(piece)))
        assert parser.buffered <= MAX_CAPSULE
        if isinstance(outcome, Exception):
            assert isinstance(outcome, PeerProtocolError)
            assert outcome.error_code == 0x107
            break
        assert all(len(capsule.value) <= MAX_CAPSULE for capsule in outcome)


@given(st.binary(max_size=80) | st.lists(entries(), max_size=4).map(b"".join))
@pytest.mark.parametrize("decode", [decode_address_assign, decode_address_request, decode_route_advertisement])
def test_any_value_of_a_capsule_is_decoded_or_malformed(decode: Callable[[bytes], object], value: bytes) -> None:
    outcome = result_or_error(lambda: decode(value))
    if isinstance(outcome, Exception):
        assert isinstance(outcome, PeerProtocolError)
        assert outcome.error_code == 0x10E
    else:
        assert isinstance(outcome, list)


@given(st.binary(max_size=24))
def test_any_datagram_payload_gives_a_packet_or_a_counted_drop(payload: bytes) -> None:
    session = Session(is_client=False)
    packet = session.receive_datagram(payload)
    assert (packet is None) == (session.drops.total() == 1)
    assert packet is None or payload.endswith(packet)


@given(st.integers(0, MAX_VARINT), st.binary(max_size=4), st.binary(max_size=4))
@example(63, b"", b"")
@example(64, b"", b"")
@example(16383, b"", b"")
@example(16384, b"", b"")
@example(2**30 - 1, b"", b"")
@example(2**30, b"", b"")
def test_a_varint_decodes_to_what_was_encoded(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varint(before + encoded + after, len(before)) == (value, len(before + encoded))
    assert decode_varint(before + encoded[:-1], len(before)) is None


@given(st.integers(0, MAX_VARINT), st.binary(max_size=64))
def test_a_known_capsule_decodes_to_what_was_encoded(kind: int, value: bytes) -> None:
    decoded = list(CapsuleParser().receive_data(encode_capsule(kind, value)))
    known = kind in {int(each) for each in CapsuleType}
    assert [(int(capsule.type), capsule.value) for capsule in decoded] == ([(kind, value)] if known else [])


@given(st.sampled_from(CapsuleType), st.binary(max_size=64))
def test_a_capsule_of_each_known_type_decodes_to_what_was_encoded(kind: CapsuleType, value: bytes) -> None:
    (capsule,) = CapsuleParser().receive_data(encode_capsule(kind, value))
    assert (capsule.type, capsule.value) == (kind, value)


@given(st.lists(st.builds(AssignedAddress, st.just(0) | request_ids, prefixes()), max_size=20))
def test_an_assignment_decodes_to_what_was_encoded(addresses: list[AssignedAddress]) -> None:
    assert decode_address_assign(encode_address_assign(addresses)) == addresses


@given(
    st.lists(
        st.builds(RequestedAddress, request_ids, prefixes()),
        min_size=1,
        max_size=20,
        unique_by=lambda request: request.request_id,
    )
)
def test_a_request_decodes_to_what_was_encoded(requests: list[RequestedAddress]) -> None:
    assert decode_address_request(encode_address_request(requests)) == requests


@given(ranges())
def test_an_advertisement_decodes_to_what_was_encoded_in_order(found: list[AddressRange]) -> None:
    decoded = decode_route_advertisement(encode_route_advertisement(found))
    assert sorted(decoded, key=repr) == sorted(found, key=repr)
    assert decoded == sorted(decoded, key=lambda each: (each.version, each.protocol, int(each.start)))
