from ipaddress import IPv4Interface, IPv6Interface
from itertools import product

import pytest

from qtunnel.config import PeerQuirks
from qtunnel.drops import DropReason
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.masque.address_capsules import (
    MAX_ADDRESSES,
    AddressRange,
    AssignedAddress,
    RequestedAddress,
    encode_address_assign,
    encode_address_request,
    encode_route_advertisement,
)
from qtunnel.masque.capsule import CapsuleType, encode_capsule
from qtunnel.masque.events import (
    AddressesAssigned,
    AddressesRequested,
    PacketsInCapsules,
    RoutesAdvertised,
    SessionEnded,
)
from qtunnel.masque.session import MAX_KEPT_BY_QUIRK, TRANSITIONS, Session, SessionInput, SessionState
from tests.unit.masque.sessions import taken

FOUR = IPv4Interface("198.18.0.5/32")
SIX = IPv6Interface("2001:db8::5/128")
ANY4 = IPv4Interface("0.0.0.0/32")
ANY6 = IPv6Interface("::/128")


def assign(*prefixes: IPv4Interface | IPv6Interface) -> bytes:
    entries = [AssignedAddress(0, prefix) for prefix in prefixes]
    return encode_capsule(CapsuleType.ADDRESS_ASSIGN, encode_address_assign(entries))


def ask(*request_ids: int) -> bytes:
    entries = [RequestedAddress(request_id, ANY4) for request_id in request_ids]
    return encode_capsule(CapsuleType.ADDRESS_REQUEST, encode_address_request(entries))


def routes(*ranges: AddressRange) -> bytes:
    return encode_capsule(CapsuleType.ROUTE_ADVERTISEMENT, encode_route_advertisement(ranges))


def hosts(base: IPv4Interface | IPv6Interface, count: int) -> list[AddressRange]:
    return [AddressRange(base.ip + 2 * index, base.ip + 2 * index) for index in range(count)]


def session_in(state: SessionState) -> Session:
    session = Session(is_client=True)
    match state:
        case SessionState.CLOSING:
            session.close()
        case SessionState.CLOSED:
            session.receive_stream_data(b"", True)
        case SessionState.ABORTED:
            session.receive_reset()
    taken(session)
    return session


def cause(session: Session, happened: SessionInput) -> None:
    match happened:
        case SessionInput.SEND:
            session.send_packet_capsule(b"E")
        case SessionInput.RECEIVE:
            session.receive_stream_data(assign(FOUR))
        case SessionInput.CLOSE:
            session.close()
        case SessionInput.END:
            session.receive_stream_data(b"", True)
        case SessionInput.RESET:
            session.receive_reset()
        case SessionInput.VIOLATION:
            with pytest.raises(PeerProtocolError):
                session.receive_stream_data(b"\x02\x00")


@pytest.mark.parametrize(("state", "happened"), list(product(SessionState, SessionInput)))
def test_every_pair_of_state_and_input_does_what_the_table_says(
    state: SessionState, happened: SessionInput
) -> None:
    session = session_in(state)
    following = TRANSITIONS.get((state, happened))
    if following is not None:
        cause(session, happened)
        assert session.state is following
        ended = following in (SessionState.CLOSED, SessionState.ABORTED) and following is not state
        assert [type(event) for event in taken(session)].count(SessionEnded) == ended
    elif happened is SessionInput.SEND:
        with pytest.raises(LocalProtocolError, match=state.value):
            cause(session, happened)
        assert session.state is state
    else:
        # Nothing is parsed once the tunnel is over, so nothing can break a rule.
        session.receive_stream_data(b"\x02\x00")
        assert session.state is state


def test_a_request_and_its_answer_both_ways() -> None:
    client, server = Session(is_client=True), Session(is_client=False)
    server.assign_addresses([AssignedAddress(0, FOUR), AssignedAddress(0, SIX)])
    server.advertise_routes([AddressRange(FOUR.ip, FOUR.ip)])
    request_ids = client.request_addresses([ANY4, ANY6, ANY4])
    client.receive_stream_data(server.data_to_send())
    server.receive_stream_data(client.data_to_send())
    unasked, advertised = taken(client)
    assert unasked == AddressesAssigned((FOUR, SIX), (), (AssignedAddress(0, FOUR), AssignedAddress(0, SIX)))
    assert advertised == RoutesAdvertised([AddressRange(FOUR.ip, FOUR.ip)])
    (asked,) = taken(server)
    assert isinstance(asked, AddressesRequested)
    server.answer_requests(asked.requests, [AssignedAddress(0, FOUR), AssignedAddress(0, SIX)])
    client.receive_stream_data(server.data_to_send())
    (answered,) = taken(client)
    assert isinstance(answered, AddressesAssigned)
    assert answered.addresses == (FOUR, SIX)
    assert answered.refused == (request_ids[2],)
    assert [entry.request_id for entry in answered.entries] == request_ids


def test_an_answer_without_ipv6_refuses_it() -> None:
    session = Session(is_client=False)
    requests = [RequestedAddress(1, ANY4), RequestedAddress(2, ANY6)]
    session.receive_stream_data(encode_capsule(2, encode_address_request(requests)))
    answer = session.answer_requests(requests, [AssignedAddress(0, FOUR), AssignedAddress(0, SIX)], ipv6=False)
    assert answer == [AssignedAddress(1, FOUR), AssignedAddress(2, ANY6)]


def test_a_peer_that_asks_again_is_told_again() -> None:
    session = Session(is_client=False)
    for request_id in (1, 2):
        session.receive_stream_data(ask(request_id))
        (event,) = taken(session)
        assert isinstance(event, AddressesRequested)
        answer = session.answer_requests(event.requests, [AssignedAddress(0, FOUR)])
        assert answer == [AssignedAddress(request_id, FOUR)]


def test_a_peer_that_asks_and_leaves_is_not_answered() -> None:
    session = Session(is_client=False)
    session.receive_stream_data(ask(1), True)
    asked, ended = taken(session)
    assert isinstance(asked, AddressesRequested)
    assert ended == SessionEnded(True, "ended by the peer")
    assert session.answer_requests(asked.requests, [AssignedAddress(0, FOUR)]) == []
    assert session.data_to_send() == b""


def test_an_address_under_two_ids_is_one_address() -> None:
    session = Session(is_client=True)
    ids = session.request_addresses([ANY4, ANY4])
    entries = [AssignedAddress(request_id, FOUR) for request_id in ids]
    session.receive_stream_data(encode_capsule(1, encode_address_assign(entries)))
    (event,) = taken(session)
    assert isinstance(event, AddressesAssigned)
    assert event.addresses == (FOUR,)
    assert list(event.entries) == entries


def test_an_all_zero_address_nobody_asked_for_is_neither_address_nor_refusal() -> None:
    session = Session(is_client=True)
    session.receive_stream_data(assign(ANY4, FOUR))
    (event,) = taken(session)
    assert isinstance(event, AddressesAssigned)
    assert (event.addresses, event.refused) == ((FOUR,), ())


def test_a_later_list_may_name_requests_answered_before() -> None:
    session = Session(is_client=False)
    session.receive_stream_data(ask(7))
    session.assign_addresses([AssignedAddress(7, FOUR)])
    session.assign_addresses([AssignedAddress(7, FOUR), AssignedAddress(0, SIX)])
    with pytest.raises(LocalProtocolError, match="twice"):
        session.assign_addresses([AssignedAddress(7, FOUR), AssignedAddress(7, SIX)])


def test_a_refused_call_sends_nothing() -> None:
    session = Session(is_client=False)
    with pytest.raises(LocalProtocolError):
        session.assign_addresses([AssignedAddress(0, FOUR), AssignedAddress(1, SIX)])
    with pytest.raises(LocalProtocolError):
        session.advertise_routes([AddressRange(FOUR.ip, FOUR.ip)] * 2)
    with pytest.raises(LocalProtocolError):
        session.request_addresses([IPv4Interface("192.0.2.1/24")])
    assert session.data_to_send() == b""


def test_open_requests_are_bounded() -> None:
    session = Session(is_client=False)
    session.receive_stream_data(ask(*range(1, MAX_ADDRESSES + 1)))
    with pytest.raises(PeerProtocolError) as caught:
        session.receive_stream_data(ask(MAX_ADDRESSES + 1))
    assert caught.value.error_code == 0x107


def test_answered_requests_are_remembered_up_to_a_bound() -> None:
    session = Session(is_client=False)
    for request_id in range(1, 3 * MAX_ADDRESSES):
        session.receive_stream_data(ask(request_id))
        (event,) = taken(session)
        assert isinstance(event, AddressesRequested)
        session.answer_requests(event.requests, ())
    assert len(session._answered) == MAX_ADDRESSES
    with pytest.raises(PeerProtocolError):
        session.receive_stream_data(ask(3 * MAX_ADDRESSES - 1))


def test_packets_and_other_events_keep_their_order() -> None:
    session = Session(is_client=True)
    packets = [encode_capsule(0, b"\x00" + bytes((index,))) for index in range(3)]
    session.receive_stream_data(packets[0] + packets[1] + assign(FOUR) + packets[2], True)
    kinds = [
        event.packets if isinstance(event, PacketsInCapsules) else type(event).__name__ for event in taken(session)
    ]
    assert kinds == [[b"\x00", b"\x01"], "AddressesAssigned", [b"\x02"], "SessionEnded"]


def test_what_came_ahead_of_a_violation_is_reported_once() -> None:
    session = Session(is_client=True)
    with pytest.raises(PeerProtocolError):
        session.receive_stream_data(assign(FOUR) + encode_capsule(0, b"\x00E") + b"\x02\x00" + assign(SIX))
    assigned, packets, ended = taken(session)
    assert isinstance(assigned, AddressesAssigned)
    assert packets == PacketsInCapsules([b"E"])
    assert isinstance(ended, SessionEnded)
    assert not ended.clean
    assert "without entries" in ended.reason


def test_a_reset_is_no_clean_end() -> None:
    session = Session(is_client=True)
    session.receive_reset()
    assert taken(session) == [SessionEnded(False, "reset by the peer")]
    assert session.receive_datagram(b"\x00E") is None
    assert session.drops == {DropReason.STREAM_CLOSED: 1}


def test_our_own_end_is_clean_once_the_peer_ends_too() -> None:
    session = Session(is_client=True)
    session.send_packet_capsule(b"E")
    session.close()
    assert session.data_to_send() == b"\x00\x02\x00E"
    assert taken(session) == []
    session.receive_stream_data(assign(FOUR), True)
    assert taken(session) == [SessionEnded(True, "ended by the peer")]


def test_the_largest_packet_fits_a_capsule() -> None:
    sender, receiver = Session(is_client=True), Session(is_client=False)
    packet = bytes(65535)
    sender.send_packet_capsule(packet)
    receiver.receive_stream_data(sender.data_to_send())
    assert taken(receiver) == [PacketsInCapsules([packet])]


def test_with_the_quirk_a_refusal_withdraws_nothing() -> None:
    session = Session(is_client=True, quirks=PeerQuirks.MQVPN)
    (request_id,) = session.request_addresses([ANY6])
    session.receive_stream_data(assign(FOUR))
    refused = [AssignedAddress(request_id, ANY6)]
    session.receive_stream_data(encode_capsule(1, encode_address_assign(refused)))
    event = taken(session)[-1]
    assert isinstance(event, AddressesAssigned)
    assert (event.addresses, event.refused) == ((FOUR,), (request_id,))


def test_with_the_quirk_a_list_of_both_families_replaces_both() -> None:
    session = Session(is_client=True, quirks=PeerQuirks.MQVPN)
    session.receive_stream_data(assign(FOUR, SIX))
    other4, other6 = IPv4Interface("198.18.0.6/32"), IPv6Interface("2001:db8::6/128")
    session.receive_stream_data(assign(other6, other4))
    event = taken(session)[-1]
    assert isinstance(event, AddressesAssigned)
    assert event.addresses == (other4, other6)


def test_with_the_quirk_what_is_kept_beside_a_list_is_bounded() -> None:
    for count in (MAX_KEPT_BY_QUIRK, MAX_KEPT_BY_QUIRK + 1):
        session = Session(is_client=True, quirks=PeerQuirks.MQVPN)
        session.receive_stream_data(routes(*hosts(FOUR, count)))
        if count == MAX_KEPT_BY_QUIRK:
            session.receive_stream_data(routes(*hosts(SIX, 1)))
            continue
        with pytest.raises(PeerProtocolError) as caught:
            session.receive_stream_data(routes(*hosts(SIX, 1)))
        assert caught.value.error_code == 0x107


@pytest.mark.parametrize("quirks", PeerQuirks)
def test_no_quirk_touches_the_other_rules(quirks: PeerQuirks) -> None:
    for data in (
        "01 07 00 05 c000020b 20",
        "01 07 00 04 c000020b 21",
        "01 07 63 04 c000020b 20",
        "02 00",
        "02 07 01 04 c0000201 18",
        "03 0a 04 c0000201 c0000200 00",
    ):
        with pytest.raises(PeerProtocolError):
            Session(is_client=True, quirks=quirks).receive_stream_data(bytes.fromhex(data))


def test_a_lower_bound_for_capsules_can_be_set() -> None:
    session = Session(is_client=True, max_capsule=6)
    with pytest.raises(PeerProtocolError) as caught:
        session.receive_stream_data(assign(FOUR))
    assert caught.value.error_code == 0x107
