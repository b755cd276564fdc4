"""Any header list gives a request, a refusal or a malformed message; what we build, we can read."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.config import IPNetwork
from qtunnel.errors import ConfigError, PeerProtocolError
from qtunnel.masque.request import (
    ConnectIpRequest,
    Headers,
    RequestRejectedError,
    ResponseRejectedError,
    build_request,
    check_response,
    is_interim_response,
    parse_request,
)
from qtunnel.masque.scope import EXTENSION_HEADERS, InvalidScopeError, Scope, parse_scope
from qtunnel.masque.structured_field import parse_boolean_item, serialize_string
from qtunnel.masque.uri_template import UriTemplate, default_template, parse_template
from tests.fuzz.masque_values import result_or_error

PREFIX = "/.well-known/masque/ip"
VALID: Headers = [
    (b":method", b"CONNECT"),
    (b":protocol", b"connect-ip"),
    (b":scheme", b"https"),
    (b":authority", b"proxy.example"),
    (b":path", b"/.well-known/masque/ip/*/*/"),
    (b"capsule-protocol", b"?1"),
    (b"authorization", b"Bearer secret"),
]
NAMES = [name for name, _ in VALID] + [b":status", b"host", b"te", b"content-length", b"X", b""]
WORDS = [b"CONNECT", b"connect-ip", b"https", b"?1", b"200", b"Bearer x", b"", b"/", b"*", b"\xff"]

pieces = st.sampled_from(
    ["*", "/", "%2F", "192.0.2.0", "2001%3Adb8%3A%3A", "24", "17", "%", "?", "&", "target=", "."]
)
paths = st.lists(pieces | st.text(st.characters(codec="latin-1"), max_size=3), max_size=8).map(
    lambda found: (PREFIX + "".join(found)).encode("latin-1")
)
fields = st.tuples(
    st.sampled_from(NAMES) | st.binary(max_size=8),
    st.sampled_from(WORDS) | st.binary(max_size=12) | paths,
)
networks = st.builds(
    lambda value, length: IPv4Network((value, length), strict=False), st.integers(0, 2**32 - 1), st.integers(0, 32)
) | st.builds(
    lambda value, length: IPv6Network((value, length), strict=False),
    st.integers(0, 2**128 - 1),
    st.integers(0, 128),
)
label_chars = "abcdefghijklmnopqrstuvwxyz0123456789"
labels = st.text(label_chars, min_size=1, max_size=12)
names = st.builds(lambda first, last: ".".join([*first, "z" + last]), st.lists(labels, max_size=3), labels)


@st.composite
def changed_requests(draw: st.DrawFn) -> Headers:
    """A valid request after a few changes."""
    headers = list(VALID)
    for _ in range(draw(st.integers(0, 3))):
        index = draw(st.integers(0, len(headers) - 1)) if headers else 0
        match draw(st.sampled_from(["drop", "insert", "replace", "path"])):
            case "drop":
                del headers[index : index + 1]
            case "insert":
                headers.insert(index, draw(fields))
            case "replace":
                headers[index : index + 1] = [(headers[index][0] if headers else b":path", draw(fields)[1])]
            case "path":
                headers = [(name, draw(paths) if name == b":path" else value) for name, value in headers]
    return headers


@given(changed_requests() | st.lists(fields, max_size=10))
def test_any_request_is_read_refused_or_malformed(headers: Headers) -> None:
    outcome = result_or_error(lambda: parse_request(headers))
    match outcome:
        case RequestRejectedError():
            assert 400 <= outcome.status <= 599
            assert outcome.headers[0] == (b":status", b"%d" % outcome.status)
        case PeerProtocolError():
            assert outcome.error_code == 0x10E
        case _:
            assert isinstance(outcome, ConnectIpRequest)
            assert outcome.target
            assert outcome.ipproto is None or 0 < outcome.ipproto <= 255


@given(st.lists(fields, max_size=6) | st.tuples(st.just((b":status", b"200")), fields).map(list))
def test_any_response_is_taken_refused_or_malformed(headers: Headers) -> None:
    is_interim_response(headers)
    outcome = result_or_error(lambda: check_response(headers))
    match outcome:
        case ResponseRejectedError():
            assert not 200 <= outcome.status <= 299
            assert outcome.reason.isprintable()
        case PeerProtocolError():
            assert outcome.error_code == 0x10E
        case _:
            assert outcome is None
            assert dict(headers)[b":status"][:1] == b"2"


@given(st.text(max_size=40) | st.lists(pieces, max_size=6).map("".join), st.text(max_size=6))
def test_any_scope_is_read_or_refused(target: str, ipproto: str) -> None:
    outcome = result_or_error(lambda: parse_scope(target, ipproto))
    assert isinstance(outcome, Scope | InvalidScopeError)


@given(networks | names | st.just("*"), st.none() | st.sampled_from(sorted(set(range(256)) - EXTENSION_HEADERS)))
def test_a_scope_survives_the_request_both_ways(target: IPNetwork | str, protocol: int | None) -> None:
    headers = build_request(
        template=default_template("proxy.example", 443),
        target=str(target),
        ipproto="*" if protocol is None else str(protocol),
    )
    path = dict(headers)[b":path"].decode()
    parsed = parse_request(headers)
    assert re.fullmatch(r"/\.well-known/masque/ip/[^/:]+/[^/:]+/", path)
    assert "%25" not in path
    assert parsed.target == str(target)
    assert parsed.ipproto == protocol
    assert parsed.target_network == (target if not isinstance(target, str) else None)
    assert parsed.target_name == (target if isinstance(target, str) and target != "*" else None)


@given(st.text(st.sampled_from("https://proxy.example/{}?&target,ipproto*:+#;%2F @[]é"), max_size=60) | st.text())
def test_any_template_is_taken_or_refused(text: str) -> None:
    for candidate in (text, f"https://proxy.example/{text}", f"https://{text}/p"):
        outcome = result_or_error(lambda candidate=candidate: parse_template(candidate))
        if isinstance(outcome, ConfigError):
            assert outcome.field == "uri_template"
            continue
        assert isinstance(outcome, UriTemplate)
        authority, path = outcome.expand("2001:db8::/32", "17")
        assert path.startswith("/")
        assert not {"{", "}", "#", " "} & set(authority + path)
        assert (authority + path).isascii()


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=80))
def test_a_token_survives_the_request(token: str) -> None:
    headers = build_request(template=default_template("proxy.example", 443), token=token)
    assert parse_request(headers).token == token


@given(st.lists(st.binary(max_size=40), max_size=2))
def test_any_field_is_a_boolean_or_none(values: list[bytes]) -> None:
    assert parse_boolean_item(values) in (None, True, False)


@given(
    st.booleans(),
    st.lists(st.tuples(st.from_regex(r"[a-z][a-z0-9_.*-]{0,5}", fullmatch=True), st.text(max_size=9))),
)
def test_a_boolean_with_any_string_parameters_is_that_boolean(
    value: bool, parameters: list[tuple[str, str]]
) -> None:
    field = b"?%d" % value + b"".join(
        b";" + key.encode() + b"=" + serialize_string(text) for key, text in parameters
    )
    assert parse_boolean_item([field]) == (value if len(field) <= 1024 else None)
