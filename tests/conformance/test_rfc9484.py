"""RFC 9484: the rules on the client's template, the request, its scope, capsules and contexts.

Rules on forwarding packets and on hosts are tested beside the code that keeps them. Bytes are those of the RFC's
own examples (§8) with minimal integers, where it has one.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

import pytest

from qtunnel.config import PeerQuirks
from qtunnel.drops import DropReason
from qtunnel.errors import ConfigError, LocalProtocolError, PeerProtocolError
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
from qtunnel.masque.capsule import CapsuleType, encode_capsule
from qtunnel.masque.datagram import CONTEXT_PREFIX, ContextAllocator
from qtunnel.masque.events import (
    AddressesAssigned,
    AddressesRequested,
    PacketsInCapsules,
    RoutesAdvertised,
    SessionEnded,
    SessionEvent,
)
from qtunnel.masque.request import (
    RequestRejectedError,
    ResponseRejectedError,
    build_request,
    build_response,
    check_response,
    parse_request,
    reject_response,
)
from qtunnel.masque.scope import parse_scope
from qtunnel.masque.session import Session, SessionState
from qtunnel.masque.uri_template import default_template, parse_template
from tests.unit.masque.sessions import taken

H3_MESSAGE_ERROR = 0x10E
TEMPLATE = default_template("proxy.example", 443)
A = IPv4Interface("192.0.2.11/32")
B = IPv6Interface("2001:db8::a/128")


def client(**options: PeerQuirks) -> Session:
    return Session(is_client=True, **options)


def server(**options: PeerQuirks) -> Session:
    return Session(is_client=False, **options)


def receive(session: Session, data: bytes) -> list[SessionEvent]:
    session.receive_stream_data(data)
    return taken(session)


def from_hex(text: str) -> bytes:
    return bytes.fromhex(text)


def assign(*entries: AssignedAddress) -> bytes:
    return encode_capsule(CapsuleType.ADDRESS_ASSIGN, encode_address_assign(entries))


def request(*entries: RequestedAddress) -> bytes:
    return encode_capsule(CapsuleType.ADDRESS_REQUEST, encode_address_request(entries))


def routes(*ranges: AddressRange) -> bytes:
    return encode_capsule(CapsuleType.ROUTE_ADVERTISEMENT, encode_route_advertisement(ranges))


def range4(start: str, end: str, protocol: int = 0) -> AddressRange:
    return AddressRange(IPv4Address(start), IPv4Address(end), protocol)


def range6(start: str, end: str, protocol: int = 0) -> AddressRange:
    return AddressRange(IPv6Address(start), IPv6Address(end), protocol)


def raw_range4(start: str, end: str, protocol: int = 0) -> bytes:
    return b"\x04" + IPv4Address(start).packed + IPv4Address(end).packed + bytes((protocol,))


def raw_range6(start: str, end: str, protocol: int = 0) -> bytes:
    return b"\x06" + IPv6Address(start).packed + IPv6Address(end).packed + bytes((protocol,))


def assert_aborts(data: bytes, session: Session | None = None) -> None:
    session = session or client()
    with pytest.raises(PeerProtocolError) as caught:
        session.receive_stream_data(data)
    assert caught.value.error_code == H3_MESSAGE_ERROR
    assert session.state is SessionState.ABORTED
    assert [event.clean for event in taken(session) if isinstance(event, SessionEnded)] == [False]


def sent(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes:
    return dict(headers)[name]


def server_request(path: str = "/.well-known/masque/ip/*/*/") -> list[tuple[bytes, bytes]]:
    return [
        (b":method", b"CONNECT"),
        (b":protocol", b"connect-ip"),
        (b":scheme", b"https"),
        (b":authority", b"proxy.example"),
        (b":path", path.encode()),
        (b"capsule-protocol", b"?1"),
    ]


def status_of(path: str) -> int:
    with pytest.raises(RequestRejectedError) as caught:
        parse_request(server_request(path))
    assert sent(caught.value.headers, b":status") == str(caught.value.status).encode()
    return caught.value.status


# §3, client configuration


@pytest.mark.parametrize("expression", ["{target*}", "{target:3}", "{?target*}", "{target,ipproto:2}"])
def test_cip_01_level_4_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="level 4"):
        parse_template(f"https://proxy.example/{expression}")


def test_cip_01_level_3_expressions_are_taken() -> None:
    template = parse_template("https://proxy.example:4443/masque/ip{?target,ipproto}")
    assert template.expand("192.0.2.1", "17") == (
        "proxy.example:4443",
        "/masque/ip?target=192.0.2.1&ipproto=17",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/masque/{target}",
        "//proxy.example/{target}",
        "https:/x",
        "https:///masque",
        "https://",
        "://h/p",
        "h/p",
    ],
)
def test_cip_02_templates_without_scheme_authority_or_path_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no scheme and authority|the authority ''|no path"):
        parse_template(text)


@pytest.mark.parametrize(
    "text", ["https://proxy.example", "https://proxy.example?t={target}", "https://proxy.example{?target}"]
)
def test_cip_03_the_path_must_begin_with_a_slash(text: str) -> None:
    with pytest.raises(ConfigError, match="no path that begins with a slash"):
        parse_template(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://{target}.x/",
        "https://proxy.example:{ipproto}/",
        "{target}://proxy.example/",
        "https://proxy.example/p#{target}",
        "https://proxy.example/p#f",
    ],
)
def test_cip_04_variables_stand_in_path_or_query_only(text: str) -> None:
    with pytest.raises(ConfigError, match=r"outside path and query|no scheme|a fragment"):
        parse_template(text)


def test_cip_05_no_preference_expands_to_an_asterisk() -> None:
    assert TEMPLATE.expand(None, None) == ("proxy.example:443", "/.well-known/masque/ip/*/*/")


@pytest.mark.parametrize(("target", "ipproto"), [("", "*"), ("*", "")])
def test_cip_05_an_empty_value_is_refused(target: str, ipproto: str) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        TEMPLATE.expand(target, ipproto)
    with pytest.raises(ConfigError, match="neither"):
        build_request(template=TEMPLATE, target=target, ipproto=ipproto)


@pytest.mark.parametrize("char", [" ", "\x7f", "é", "\n", "\x00", "\u212a"])
def test_cip_06_only_visible_ascii_may_stand_in_a_template(char: str) -> None:
    with pytest.raises(ConfigError, match="only visible ASCII"):
        parse_template(f"https://proxy.example/a{char}b/{{target}}")


@pytest.mark.parametrize("operator", ["+", "#", ".", "/", ";"])
def test_cip_07_the_forbidden_expansions_are_refused(operator: str) -> None:
    with pytest.raises(ConfigError, match="rules out"):
        parse_template(f"https://proxy.example/p{{{operator}target}}")


def test_cip_07_query_expansions_are_fine() -> None:
    template = parse_template("https://proxy.example/p?user=bob{&target,ipproto}")
    assert template.expand("*", "6")[1] == "/p?user=bob&target=*&ipproto=6"


@pytest.mark.parametrize(("target", "ipproto"), [("192.0.2.1/24", "*"), ("*", "256"), ("a b", "*")])
def test_cip_08_a_bad_configuration_builds_no_request(target: str, ipproto: str) -> None:
    with pytest.raises(ConfigError, match=r"bits set below its prefix length|neither"):
        build_request(template=TEMPLATE, target=target, ipproto=ipproto)


def test_cip_09_host_and_port_alone_give_the_default_template() -> None:
    template = default_template("proxy.example", 4443)
    assert template.text == "https://proxy.example:4443/.well-known/masque/ip/{target}/{ipproto}/"
    assert default_template("2001:db8::1", 443).authority == "[2001:db8::1]:443"


def test_cip_10_the_server_serves_the_default_path() -> None:
    assert parse_request(build_request(template=TEMPLATE)).scope == parse_scope("*", "*")


# §4.1 to §4.5, request and response


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("https://example.org/.well-known/masque/ip/{target}/{ipproto}/", "/.well-known/masque/ip/*/*/"),
        ("https://proxy.example.org:4443/masque/ip?t={target}&i={ipproto}", "/masque/ip?t=*&i=*"),
        ("https://proxy.example.org:4443/masque/ip{?target,ipproto}", "/masque/ip?target=*&ipproto=*"),
        ("https://masque.example.org/?user=bob", "/?user=bob"),
    ],
)
def test_cip_11_the_path_is_the_expanded_template(text: str, path: str) -> None:
    assert sent(build_request(template=parse_template(text)), b":path") == path.encode()


def test_cip_12_a_template_without_encryption_is_refused() -> None:
    with pytest.raises(ConfigError, match="https"):
        parse_template("http://proxy.example/{target}")


@pytest.mark.parametrize(
    "variables",
    [
        "192.0.2.1%2F33/*",
        "192.0.2.1%2F24/*",
        "192.0.2.256/*",
        "192.0.2.0%252F24/*",
        "2001%3Adb8%3A%3A42%2F129/*",
        "2001%253Adb8%253A%253A42/*",
        "%zz/*",
        "%2/*",
        "%FF/*",
        "a%20b/*",
        "%00/*",
        "/*",
        "*/256",
        "*/-1",
        "*/tcp",
        "*/06a",
        "*/%E0%BC%A1",
    ],
)
def test_cip_13_bad_variables_are_answered_with_400(variables: str) -> None:
    assert status_of(f"/.well-known/masque/ip/{variables}/") == 400


def test_cip_13_variables_are_decoded_before_they_are_checked() -> None:
    parsed = parse_request(server_request("/.well-known/masque/ip/%31%39%32.0.2.0%2f24/%31%37/"))
    assert (parsed.target, parsed.ipproto) == ("192.0.2.0/24", 17)
    assert parsed.target_network == IPv4Network("192.0.2.0/24")


def test_cip_15_a_refusal_can_say_that_the_name_did_not_resolve() -> None:
    headers = reject_response(502, proxy_status="dns_error", details='no "A" record')
    assert sent(headers, b":status") == b"502"
    assert sent(headers, b"proxy-status") == b'qtunnel; error=dns_error; details="no \\"A\\" record"'


@pytest.mark.parametrize(
    "status", [b"300", b"301", b"307", b"400", b"401", b"403", b"404", b"500", b"503", b"100"]
)
def test_cip_18_anything_but_success_is_failure(status: bytes) -> None:
    with pytest.raises(ResponseRejectedError) as caught:
        check_response([(b":status", status), (b"location", b"https://elsewhere.example/")])
    assert caught.value.status == int(status)


def test_cip_18_a_success_without_content_is_failure() -> None:
    with pytest.raises(PeerProtocolError, match="cannot start capsules"):
        check_response([(b":status", b"204")])


def test_cip_19_the_http_1_form_of_a_request_is_not_supported() -> None:
    upgrade = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"proxy.example"), (b":path", b"/p")]
    with pytest.raises(RequestRejectedError) as caught:
        parse_request(upgrade)
    assert caught.value.status == 405
    with pytest.raises(PeerProtocolError, match="belongs to one connection"):
        parse_request([*upgrade, (b"connection", b"Upgrade"), (b"upgrade", b"connect-ip")])


def test_cip_20_the_request_is_that_of_the_rfc() -> None:
    template = parse_template("https://example.org/.well-known/masque/ip/{target}/{ipproto}/")
    assert build_request(template=template) == [
        (b":method", b"CONNECT"),
        (b":protocol", b"connect-ip"),
        (b":scheme", b"https"),
        (b":authority", b"example.org"),
        (b":path", b"/.well-known/masque/ip/*/*/"),
        (b"capsule-protocol", b"?1"),
    ]


@pytest.mark.parametrize("name", [b":method", b":scheme", b":authority", b":path"])
def test_cip_21_a_request_without_a_pseudo_header_field_is_malformed(name: bytes) -> None:
    for headers in (
        [(key, value) for key, value in server_request() if key != name],
        [(key, b"" if key == name else value) for key, value in server_request()],
    ):
        with pytest.raises(PeerProtocolError) as caught:
            parse_request(headers)
        assert caught.value.error_code == H3_MESSAGE_ERROR


def test_cip_21_a_request_without_protocol_is_a_plain_connect_and_malformed() -> None:
    with pytest.raises(PeerProtocolError, match="without :protocol"):
        parse_request([(key, value) for key, value in server_request() if key != b":protocol"])


@pytest.mark.parametrize("status", [b"200", b"201", b"299"])
def test_cip_22_any_success_that_may_start_capsules_is_success(status: bytes) -> None:
    assert check_response([(b":status", status), (b"capsule-protocol", b"?1")]) is None


def test_cip_22_the_server_answers_200_with_capsule_protocol() -> None:
    assert build_response() == [(b":status", b"200"), (b"capsule-protocol", b"?1")]


def test_cip_24_packets_ahead_of_any_capsule_do_no_harm() -> None:
    session = server()
    assert session.receive_datagram(b"\x00E early") == b"E early"
    assert session.state is SessionState.OPEN


# §4.6, scope


@pytest.mark.parametrize(
    ("path", "network", "name", "protocol"),
    [
        ("", None, None, None),
        ("/", None, None, None),
        ("/*/*/", None, None, None),
        ("/%2A/%2A/", None, None, None),
        ("/192.0.2.7", IPv4Network("192.0.2.7/32"), None, None),
        ("/192.0.2.0%2F24/6", IPv4Network("192.0.2.0/24"), None, 6),
        ("/0.0.0.0%2F0/006/", IPv4Network("0.0.0.0/0"), None, 6),
        ("/2001%3Adb8%3A%3A42/17/", IPv6Network("2001:db8::42/128"), None, 17),
        ("/2001%3Adb8%3A%3A%2F032/17/", IPv6Network("2001:db8::/32"), None, 17),
        ("/%3A%3Affff%3A192.0.2.1/*/", IPv6Network("::ffff:192.0.2.1/128"), None, None),
        ("/target.example/255/", None, "target.example", 255),
        ("?target=192.0.2.7&ipproto=17", IPv4Network("192.0.2.7/32"), None, 17),
        ("?ipproto=17&x=1", None, None, 17),
        ("/192.0.2.7?ipproto=17", IPv4Network("192.0.2.7/32"), None, 17),
    ],
)
def test_cip_25_the_scope_is_read_from_the_path(
    path: str, network: IPv4Network | IPv6Network | None, name: str | None, protocol: int | None
) -> None:
    parsed = parse_request(server_request(f"/.well-known/masque/ip{path}"))
    assert (parsed.target_network, parsed.target_name, parsed.ipproto) == (network, name, protocol)


def test_cip_26_colons_are_percent_encoded_exactly_once() -> None:
    path = sent(build_request(template=TEMPLATE, target="2001:db8::42"), b":path")
    assert path == b"/.well-known/masque/ip/2001%3Adb8%3A%3A42/*/"


def test_cip_27_the_prefix_length_follows_an_encoded_slash() -> None:
    path = sent(build_request(template=TEMPLATE, target="2001:db8::/32"), b":path")
    assert path == b"/.well-known/masque/ip/2001%3Adb8%3A%3A%2F32/*/"


@pytest.mark.parametrize(
    "target",
    [
        "0.0.0.0%2F33",
        "0.0.0.0%2F-1",
        "0.0.0.0%2F",
        "0.0.0.0%2F008",
        "%3A%3A%2F129",
        "%3A%3A%2F0128",
        "%3A%3A%2Fx",
        "a.example%2F8",
    ],
)
def test_cip_27_a_bad_prefix_length_is_refused(target: str) -> None:
    assert status_of(f"/.well-known/masque/ip/{target}/*/") == 400


def test_cip_27_a_slash_that_is_not_encoded_is_another_path() -> None:
    assert status_of("/.well-known/masque/ip/192.0.2.0/24/*/") == 404


@pytest.mark.parametrize("target", ["192.0.2.1%2F24", "2001%3Adb8%3A%3A1%2F64", "0.0.0.1%2F0"])
def test_cip_28_bits_below_the_prefix_length_are_refused(target: str) -> None:
    assert status_of(f"/.well-known/masque/ip/{target}/*/") == 400


@pytest.mark.parametrize("ipproto", ["256", "999", "0000", "06a", "+6", "6.0", "-1", "%2B6", "", "**"])
def test_cip_29_ipproto_is_0_to_255(ipproto: str) -> None:
    assert status_of(f"/.well-known/masque/ip?ipproto={ipproto}") == 400


@pytest.mark.parametrize("zone", ["%25eth0", "%2525eth0", "%25eth0%2F64"])
def test_cip_30_zone_identifiers_are_refused(zone: str) -> None:
    assert status_of(f"/.well-known/masque/ip/fe80%3A%3A1{zone}/*/") == 400


def test_cip_30_zone_identifiers_are_never_sent() -> None:
    with pytest.raises(ConfigError, match="no IP prefix"):
        build_request(template=TEMPLATE, target="fe80::1%eth0")


# §4.7, capsules


def test_cip_34_both_ends_take_all_three_capsules_any_number_of_times() -> None:
    for session in (client(), server()):
        for round_number in (1, 2):
            events = receive(
                session,
                assign(AssignedAddress(0, A))
                + request(RequestedAddress(round_number, A))
                + routes(range4("0.0.0.0", "255.255.255.255")),
            )
            kinds = [type(event) for event in events]
            assert kinds == [AddressesAssigned, AddressesRequested, RoutesAdvertised]


def test_cip_35_an_address_missing_from_the_newest_list_is_withdrawn() -> None:
    session = client()
    receive(session, assign(AssignedAddress(0, A), AssignedAddress(0, B)))
    assert receive(session, assign(AssignedAddress(0, B)))[0].addresses == (B,)
    assert receive(session, from_hex("01 00"))[0].addresses == ()


def test_cip_35_with_the_quirk_a_list_of_one_family_leaves_the_other() -> None:
    session = client(quirks=PeerQuirks.MQVPN)
    receive(session, assign(AssignedAddress(0, A)))
    assert receive(session, assign(AssignedAddress(0, B)))[0].addresses == (A, B)
    other = IPv4Interface("192.0.2.12/32")
    assert receive(session, assign(AssignedAddress(0, other)))[0].addresses == (other, B)
    assert receive(session, from_hex("01 00"))[0].addresses == ()


def test_cip_36_an_answer_carries_the_id_of_its_request() -> None:
    peer = server()
    receive(peer, request(RequestedAddress(77, IPv4Interface("0.0.0.0/32"))))
    answer = peer.answer_requests([RequestedAddress(77, IPv4Interface("0.0.0.0/32"))], [AssignedAddress(0, A)])
    assert answer == [AssignedAddress(77, A)]


def test_cip_36_an_id_that_nobody_asked_with_is_neither_sent_nor_taken() -> None:
    with pytest.raises(LocalProtocolError, match="did not ask with Request ID 1"):
        server().assign_addresses([AssignedAddress(1, A)])
    assert_aborts(assign(AssignedAddress(1, A)))
    asked = client()
    (request_id,) = asked.request_addresses([A])
    assert_aborts(assign(AssignedAddress(request_id + 1, A)), asked)


@pytest.mark.parametrize("version", [0, 5, 7, 255])
def test_cip_37_ip_versions_other_than_4_and_6_are_malformed(version: int) -> None:
    for address in (A, B):  # whichever length such an address would have
        entry = bytes((version,)) + address.packed + bytes((address.max_prefixlen,))
        assert_aborts(encode_capsule(1, b"\x00" + entry))
        assert_aborts(encode_capsule(2, b"\x01" + entry), server())


def test_cip_37_an_address_has_the_length_of_its_version() -> None:
    assert_aborts(encode_capsule(1, b"\x00\x06" + A.packed + b"\x20"))
    assert_aborts(encode_capsule(1, b"\x00\x04" + B.packed + b"\x80"))


@pytest.mark.parametrize(
    ("version", "packed", "length"), [(4, A.packed, 33), (6, B.packed, 129), (4, A.packed, 128)]
)
def test_cip_38_a_prefix_length_beyond_the_address_is_malformed(version: int, packed: bytes, length: int) -> None:
    assert_aborts(encode_capsule(1, bytes((0, version)) + packed + bytes((length,))))


@pytest.mark.parametrize("text", ["192.0.2.1/24", "2001:db8::1/112", "0.0.0.1/0"])
def test_cip_39_bits_below_the_prefix_length_are_malformed(text: str) -> None:
    prefix = IPv4Interface(text) if "." in text else IPv6Interface(text)
    value = bytes((0, prefix.version)) + prefix.packed + bytes((prefix.network.prefixlen,))
    assert_aborts(encode_capsule(1, value))
    with pytest.raises(LocalProtocolError, match="bits set below"):
        server().assign_addresses([AssignedAddress(0, prefix)])


def test_cip_39_with_the_quirk_an_address_keeps_the_bits_below_its_prefix_length() -> None:
    address = IPv6Interface("2001:db8::7/112")
    value = b"\x00\x06" + address.packed + b"\x70"
    (event,) = receive(client(quirks=PeerQuirks.MQVPN), encode_capsule(1, value))
    assert event.addresses == (address,)
    assert (event.addresses[0].ip, event.addresses[0].network.prefixlen) == (IPv6Address("2001:db8::7"), 112)


def test_cip_41_an_end_that_needs_an_address_asks_for_it() -> None:
    session = client()
    session.request_addresses([IPv4Interface("0.0.0.0/32")])
    assert session.data_to_send() == from_hex("02 07 01 04 00000000 20")


def test_cip_42_an_assignment_that_nobody_asked_for_is_taken_at_any_time() -> None:
    session = client()
    assert receive(session, from_hex("01 07 00 04 c000022a 20"))[0].addresses == (IPv4Interface("192.0.2.42/32"),)
    session.request_addresses([IPv6Interface("::/128")])
    assert receive(session, assign(AssignedAddress(0, A)))[0].addresses == (A,)


def test_cip_43_request_ids_are_never_zero_and_never_used_twice() -> None:
    session = client()
    used = [*session.request_addresses([A, B]), *session.request_addresses([A])]
    with pytest.raises(LocalProtocolError, match="bits set below"):
        session.request_addresses([IPv4Interface("192.0.2.1/24")])
    used += session.request_addresses([A])
    assert 0 not in used
    assert len(set(used)) == len(used) == 4


def test_cip_43_a_request_id_of_zero_or_one_used_before_is_malformed() -> None:
    assert_aborts(from_hex("02 07 00 04 00000000 20"), server())
    assert_aborts(from_hex("02 0e 01 04 00000000 20 01 04 00000000 20"), server())
    session = server()
    (event,) = receive(session, request(RequestedAddress(5, A)))
    session.answer_requests(event.requests, ())
    assert_aborts(request(RequestedAddress(5, A)), session)


@pytest.mark.parametrize(
    "value",
    [
        "01 05 00000000 20",
        "01 04 00000000 21",
        "01 04 c0000201 18",
        "01 06 00000000 20",
        "01 04 00000000",
        "01 04",
    ],
)
def test_cip_44_a_malformed_requested_address_aborts(value: str) -> None:
    assert_aborts(encode_capsule(2, from_hex(value)), server())


def test_cip_45_an_all_zero_wish_still_asks_for_its_prefix_length() -> None:
    wish = RequestedAddress(1, IPv4Interface("0.0.0.0/29"))
    block = IPv4Interface("192.0.2.8/29")
    for assigned, answer in (
        (block, AssignedAddress(1, block)),
        (A, AssignedAddress(1, IPv4Interface("0.0.0.0/32"))),
    ):
        session = server()
        receive(session, request(wish))
        assert answer in session.answer_requests([wish], [AssignedAddress(0, assigned)])


def test_cip_46_every_request_is_answered_with_an_assignment() -> None:
    session = server()
    (event,) = receive(session, request(RequestedAddress(9, A)))
    assert session.unanswered_requests == {9}
    session.answer_requests(event.requests, ())
    assert session.unanswered_requests == frozenset()
    assert session.data_to_send() == from_hex("01 07 09 04 00000000 20")


def test_cip_47_each_request_has_its_own_entry() -> None:
    session = server()
    wishes = [RequestedAddress(n, IPv4Interface("0.0.0.0/32")) for n in (3, 1, 2)]
    (event,) = receive(session, request(*wishes))
    answer = session.answer_requests(event.requests, [AssignedAddress(0, A), AssignedAddress(0, B)])
    assert sorted(entry.request_id for entry in answer) == [0, 1, 2, 3]
    assert [entry.prefix for entry in answer if not entry.is_refusal] == [A, B]


def test_cip_48_a_refusal_is_all_zero_at_full_length() -> None:
    session = server()
    wishes = [RequestedAddress(5, A), RequestedAddress(6, B)]
    receive(session, request(*wishes))
    session.answer_requests(wishes, ())
    data = session.data_to_send()
    assert data == encode_capsule(1, from_hex("05 04 00000000 20" + "06 06" + "00" * 16 + "80"))


def test_cip_48_a_refusal_is_no_address() -> None:
    session = client()
    session.request_addresses([A, B])
    (event,) = receive(session, from_hex("01 07 01 04 00000000 20"))
    assert (event.addresses, event.refused) == ((), (1,))
    (event,) = receive(session, from_hex("01 13 02 06" + "00" * 16 + "80"))
    assert (event.addresses, event.refused) == ((), (2,))


def test_cip_49_a_refusal_is_sent_once() -> None:
    session = server()
    (event,) = receive(session, request(RequestedAddress(1, A)))
    refusals = session.answer_requests(event.requests, ())
    with pytest.raises(LocalProtocolError, match="a refusal under Request ID 1"):
        session.assign_addresses(refusals)


def test_cip_50_a_request_without_entries_aborts() -> None:
    assert_aborts(from_hex("02 00"), server())
    with pytest.raises(LocalProtocolError, match="at least one entry"):
        client().request_addresses([])


def test_cip_51_neither_order_nor_ids_of_requests_mean_anything() -> None:
    wishes = [
        RequestedAddress(900, IPv4Interface("0.0.0.0/32")),
        RequestedAddress(2, B),
        RequestedAddress(31, A),
    ]
    answers = []
    for order in (wishes, wishes[::-1], [wishes[1], wishes[0], wishes[2]]):
        session = server()
        receive(session, request(*order))
        answers.append(set(session.answer_requests(order, [AssignedAddress(0, A), AssignedAddress(0, B)])))
    assert answers[0] == answers[1] == answers[2]
    assert AssignedAddress(31, A) in answers[0]


def test_cip_52_a_range_missing_from_the_newest_list_is_withdrawn() -> None:
    session = client()
    four, six = range4("192.0.2.0", "192.0.2.255"), range6("2001:db8::", "2001:db8::ff")
    assert receive(session, routes(four, six))[0].ranges == [four, six]
    assert receive(session, routes(six))[0].ranges == [six]
    assert receive(session, from_hex("03 00"))[0].ranges == []


def test_cip_52_with_the_quirk_ranges_of_one_family_leave_the_other() -> None:
    session = client(quirks=PeerQuirks.MQVPN)
    four, six = range4("0.0.0.0", "255.255.255.255"), range6("::", "ffff:" * 7 + "ffff")
    receive(session, routes(four))
    assert receive(session, routes(six))[0].ranges == [four, six]
    other = range4("192.0.2.0", "192.0.2.255")
    assert receive(session, routes(other))[0].ranges == [other, six]
    assert receive(session, from_hex("03 00"))[0].ranges == []


@pytest.mark.parametrize("version", [0, 5, 7])
def test_cip_53_a_range_of_another_ip_version_is_malformed(version: int) -> None:
    for address_length in (4, 16):
        assert_aborts(encode_capsule(3, bytes((version,)) + bytes(2 * address_length) + b"\x00"))


def test_cip_53_a_range_that_starts_above_its_end_is_malformed() -> None:
    assert_aborts(encode_capsule(3, raw_range4("192.0.2.2", "192.0.2.1")))
    assert_aborts(encode_capsule(3, raw_range6("::2", "::1")))
    with pytest.raises(LocalProtocolError, match="above its end"):
        range4("192.0.2.2", "192.0.2.1")


def test_cip_53_a_range_may_be_one_address() -> None:
    assert receive(client(), encode_capsule(3, raw_range6("::1", "::1")))[0].ranges == [range6("::1", "::1")]


@pytest.mark.parametrize(
    "value",
    [
        raw_range6("::", "::1") + raw_range4("192.0.2.0", "192.0.2.1"),
        raw_range4("192.0.2.0", "192.0.2.1", 17) + raw_range4("192.0.2.2", "192.0.2.3", 6),
        raw_range4("192.0.2.8", "192.0.2.9", 6) + raw_range4("192.0.2.0", "192.0.2.1", 6),
        raw_range4("192.0.2.0", "192.0.2.8") + raw_range4("192.0.2.4", "192.0.2.9"),
        raw_range4("192.0.2.0", "192.0.2.8") + raw_range4("192.0.2.8", "192.0.2.9"),
        raw_range6("::", "::8", 6) + raw_range6("::8", "::9", 6),
        raw_range4("192.0.2.0", "192.0.2.8") + raw_range4("192.0.2.0", "192.0.2.8"),
    ],
    ids=["version", "protocol", "address", "overlap", "common-boundary", "common-boundary-6", "twice"],
)
def test_cip_54_ranges_out_of_order_abort(value: bytes) -> None:
    assert_aborts(encode_capsule(3, value))


def test_cip_54_ranges_in_order_are_taken() -> None:
    value = (
        raw_range4("192.0.2.0", "192.0.2.8", 6)
        + raw_range4("192.0.2.9", "192.0.2.9", 6)
        + raw_range4("192.0.2.0", "192.0.2.8", 17)
        + raw_range6("::", "::1")
    )
    assert len(receive(client(), encode_capsule(3, value))[0].ranges) == 4


def test_cip_54_ranges_are_sent_in_order() -> None:
    session = server()
    ranges = [range6("::", "::1"), range4("192.0.2.9", "192.0.2.9", 17), range4("192.0.2.1", "192.0.2.1", 17)]
    session.advertise_routes(ranges)
    assert receive(client(), session.data_to_send())[0].ranges == ranges[::-1]


@pytest.mark.parametrize("protocol", [1, 6, 255])
def test_cip_55_a_range_of_all_protocols_that_overlaps_one_of_a_single_one_aborts(protocol: int) -> None:
    wildcards = raw_range4("192.0.2.0", "192.0.2.8") + raw_range4("192.0.3.0", "192.0.3.8")
    for start, end in (
        ("192.0.2.8", "192.0.2.9"),
        ("192.0.1.255", "192.0.2.0"),
        ("192.0.2.4", "192.0.2.4"),
        ("192.0.0.0", "192.0.9.0"),
        ("192.0.3.8", "192.0.3.8"),
    ):
        assert_aborts(encode_capsule(3, wildcards + raw_range4(start, end, protocol)))


def test_cip_55_such_ranges_are_never_sent() -> None:
    with pytest.raises(LocalProtocolError, match="every protocol"):
        server().advertise_routes([range4("192.0.2.0", "192.0.2.8"), range4("192.0.2.8", "192.0.2.9", 6)])
    with pytest.raises(LocalProtocolError, match="ends at"):
        server().advertise_routes([range4("192.0.2.0", "192.0.2.8"), range4("192.0.2.8", "192.0.2.9")])


def test_cip_55_such_ranges_side_by_side_are_taken() -> None:
    value = (
        raw_range4("192.0.2.1", "192.0.2.8")
        + raw_range4("192.0.2.0", "192.0.2.0", 6)
        + raw_range4("192.0.2.9", "192.0.2.9", 6)
        + raw_range6("::", "::ffff", 17)
    )
    assert len(receive(client(), encode_capsule(3, value))[0].ranges) == 4


def test_cip_56_protocol_0_is_every_protocol() -> None:
    (event,) = receive(client(), from_hex("03 0a 04 00000000 ffffffff 00"))
    assert event.ranges == [range4("0.0.0.0", "255.255.255.255", 0)]
    assert status_of("/.well-known/masque/ip/*/0/") == 400


@pytest.mark.parametrize("ipproto", [0, 43, 44, 60, 135, 139, 140])
def test_cip_59_scoping_to_an_extension_header_is_refused(ipproto: int) -> None:
    assert status_of(f"/.well-known/masque/ip/*/{ipproto}/") == 400


# §8, the examples as bytes


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        ("01 07 01 04 c000020b 20", [AssignedAddress(1, IPv4Interface("192.0.2.11/32"))]),
        ("01 07 00 04 c000022a 20", [AssignedAddress(0, IPv4Interface("192.0.2.42/32"))]),
        ("01 07 00 04 c00002c8 20", [AssignedAddress(0, IPv4Interface("192.0.2.200/32"))]),
        ("01 07 00 04 cb007164 20", [AssignedAddress(0, IPv4Interface("203.0.113.100/32"))]),
        (
            "01 13 00 06 20010db812340000000000000000000a 80",
            [AssignedAddress(0, IPv6Interface("2001:db8:1234::a/128"))],
        ),
        (
            "01 1a 00 04 c0000203 20 00 06 20010db8000000000000000012341234 80",
            [
                AssignedAddress(0, IPv4Interface("192.0.2.3/32")),
                AssignedAddress(0, IPv6Interface("2001:db8::1234:1234/128")),
            ],
        ),
    ],
)
def test_cip_35_the_assignments_of_the_examples(data: str, entries: list[AssignedAddress]) -> None:
    session = client()
    session.request_addresses([IPv4Interface("0.0.0.0/32")])
    (event,) = receive(session, from_hex(data))
    assert list(event.entries) == entries
    assert decode_address_assign(from_hex(data)[2:]) == entries
    assert assign(*entries) == from_hex(data)


@pytest.mark.parametrize(
    ("data", "ranges"),
    [
        ("03 0a 04 00000000 ffffffff 00", [range4("0.0.0.0", "255.255.255.255")]),
        (
            "03 14 04 c0000200 c0000229 00 04 c000022b c00002ff 00",
            [range4("192.0.2.0", "192.0.2.41"), range4("192.0.2.43", "192.0.2.255")],
        ),
        ("03 0a 04 c0000200 c00002ff 00", [range4("192.0.2.0", "192.0.2.255")]),
        ("03 0a 04 cb007100 cb0071ff 00", [range4("203.0.113.0", "203.0.113.255")]),
        (
            "03 22 06 20010db834560000000000000000000b 20010db834560000000000000000000b 84",
            [range6("2001:db8:3456::b", "2001:db8:3456::b", 132)],
        ),
        (
            "03 2c 04 c6336402 c6336402 11"
            " 06 20010db834560000000000000000000b 20010db834560000000000000000000b 11",
            [
                range4("198.51.100.2", "198.51.100.2", 17),
                range6("2001:db8:3456::b", "2001:db8:3456::b", 17),
            ],
        ),
    ],
)
def test_cip_52_the_routes_of_the_examples(data: str, ranges: list[AddressRange]) -> None:
    assert receive(client(), from_hex(data))[0].ranges == ranges
    assert decode_route_advertisement(from_hex(data)[2:]) == ranges
    assert routes(*ranges) == from_hex(data)


def test_cip_44_the_request_of_the_examples() -> None:
    value = from_hex("01 04 00000000 20")
    assert decode_address_request(value) == [RequestedAddress(1, IPv4Interface("0.0.0.0/32"))]


# §5 and §6, contexts and payload


def test_cip_60_a_datagram_is_context_0_and_one_whole_packet() -> None:
    packet = from_hex("4500 0014") + bytes(16)
    assert CONTEXT_PREFIX == b"\x00"
    assert client().receive_datagram(CONTEXT_PREFIX + packet) == packet


@pytest.mark.parametrize("zero", ["00", "4000", "80000000", "c000000000000000"])
def test_cip_60_context_0_is_known_in_every_width(zero: str) -> None:
    assert client().receive_datagram(from_hex(zero) + b"packet") == b"packet"


def test_cip_61_clients_allocate_even_context_ids_and_proxies_odd_ones() -> None:
    even, odd = ContextAllocator(is_client=True), ContextAllocator(is_client=False)
    assert [even.allocate() for _ in range(3)] == [2, 4, 6]
    assert [odd.allocate() for _ in range(3)] == [1, 3, 5]
    assert client().contexts.allocate() == 2
    assert server().contexts.allocate() == 1


@pytest.mark.parametrize("context_id", ["01", "02", "3f", "4002", "c000000000000002", "ffffffffffffffff"])
def test_cip_62_a_datagram_of_an_unknown_context_is_dropped_and_counted(context_id: str) -> None:
    session = client()
    assert session.receive_datagram(from_hex(context_id) + b"E") is None
    assert session.drops == {DropReason.UNKNOWN_CONTEXT: 1}
    assert session.state is SessionState.OPEN


def test_cip_63_an_empty_payload_is_an_empty_packet() -> None:
    assert client().receive_datagram(b"\x00") == b""


@pytest.mark.parametrize("payload", ["", "40", "c0000000000000"])
def test_cip_63_a_payload_without_a_whole_context_id_is_dropped(payload: str) -> None:
    session = client()
    assert session.receive_datagram(from_hex(payload)) is None
    assert session.drops == {DropReason.MALFORMED: 1}
    assert session.state is SessionState.OPEN


def test_cip_64_a_datagram_capsule_may_come_in_pieces() -> None:
    sender, receiver = client(), server()
    packet = bytes(range(256)) * 5
    sender.send_packet_capsule(packet)
    data = sender.data_to_send()
    events = []
    for index in range(len(data)):
        events += receive(receiver, data[index : index + 1])
    assert events == [PacketsInCapsules([packet])]


# §9 and §10


def test_cip_78_capsules_of_an_extension_are_skipped_and_the_next_assignment_takes_effect() -> None:
    extension = encode_capsule(0x1ACE79EC, b"what an extension says about addressing")
    assert receive(client(), extension + assign(AssignedAddress(0, A)))[0].addresses == (A,)


def test_cip_81_a_request_is_made_for_http_3_and_in_no_older_form() -> None:
    names = [name for name, _ in build_request(template=TEMPLATE, token="secret")]
    assert b":protocol" in names
    assert not {b"connection", b"upgrade", b"host"} & set(names)
