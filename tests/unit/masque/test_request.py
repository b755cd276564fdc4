import pytest

from qtunnel.errors import ConfigError, LocalProtocolError, PeerProtocolError
from qtunnel.masque.request import (
    Headers,
    RequestRejectedError,
    ResponseRejectedError,
    build_request,
    build_response,
    check_response,
    is_interim_response,
    parse_request,
    reject_response,
)
from qtunnel.masque.uri_template import default_template, parse_template

TEMPLATE = default_template("proxy.example", 443)


def request(path: str = "/.well-known/masque/ip/*/*/", *extra: tuple[bytes, bytes]) -> Headers:
    return [
        (b":method", b"CONNECT"),
        (b":protocol", b"connect-ip"),
        (b":scheme", b"https"),
        (b":authority", b"proxy.example"),
        (b":path", path.encode("latin-1")),
        *extra,
    ]


def status_of(headers: Headers, **options: str) -> int:
    with pytest.raises(RequestRejectedError) as caught:
        parse_request(headers, **options)
    assert caught.value.headers[0] == (b":status", b"%d" % caught.value.status)
    return caught.value.status


def test_the_fields_come_in_the_order_the_c_peer_uses() -> None:
    assert build_request(template=TEMPLATE, token="secret") == [
        (b":method", b"CONNECT"),
        (b":protocol", b"connect-ip"),
        (b":scheme", b"https"),
        (b":authority", b"proxy.example:443"),
        (b":path", b"/.well-known/masque/ip/*/*/"),
        (b"capsule-protocol", b"?1"),
        (b"authorization", b"Bearer secret"),
    ]


@pytest.mark.parametrize("token", ["", "a b", "é", "a\n", "a\x00"])
def test_a_token_that_no_field_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_request(template=TEMPLATE, token=token)
    assert caught.value.field == "token"


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (b"Bearer secret", "secret"),
        (b"bearer  a.b~c+d/e=", "a.b~c+d/e="),
        (b"BEARER :@{}", ":@{}"),
        (b"Bearer", None),
        (b"Bearer a b", None),
        (b"Bearer\tsecret", None),
        (b"Bearersecret", None),
        (b"Bearer \xe9", None),
        (b"Basic c2VjcmV0", None),
        (b"", None),
    ],
)
def test_the_token_is_what_follows_bearer(value: bytes, token: str | None) -> None:
    assert parse_request(request("/.well-known/masque/ip", (b"authorization", value))).token == token


def test_no_authorization_is_no_token_and_two_are_refused() -> None:
    assert parse_request(request()).token is None
    twice = [(b"authorization", b"Bearer a")] * 2
    assert status_of([*request(), *twice]) == 400


def test_a_token_is_in_no_representation() -> None:
    parsed = parse_request(request("/.well-known/masque/ip", (b"authorization", b"Bearer secret")))
    assert "secret" not in repr(parsed)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/.well-known/masque",
        "/.well-known/masque/ipx/*/*/",
        "/.well-known/masque/ip2",
        "/.well-known/masque/udp/*/*/",
        "/.WELL-KNOWN/masque/ip/*/*/",
        "//.well-known/masque/ip/*/*/",
        "/.well-known/masque/ip/*/*/x",
        "/.well-known/masque/ip/*/*/x/",
        "/.well-known/masque/ip/*/*//",
    ],
)
def test_another_path_is_not_found(path: str) -> None:
    assert status_of(request(path)) == 404


@pytest.mark.parametrize("prefix", ["/vpn", "/vpn/", "/", ""])
def test_tunnels_are_served_where_the_prefix_says(prefix: str) -> None:
    path = f"{prefix.rstrip('/')}/192.0.2.7/17/"
    assert parse_request(request(path), path_prefix=prefix).target == "192.0.2.7"


@pytest.mark.parametrize("query", ["target=*&target=*", "ipproto=6&ipproto=6"])
def test_a_variable_that_is_there_twice_is_refused(query: str) -> None:
    assert status_of(request(f"/.well-known/masque/ip?{query}")) == 400
    assert status_of(request(f"/.well-known/masque/ip/*/*?{query.partition('&')[0]}")) == 400


def test_a_template_with_query_variables_is_understood() -> None:
    template = parse_template("https://proxy.example/.well-known/masque/ip{?target,ipproto}")
    parsed = parse_request(build_request(template=template, target="192.0.2.0/24", ipproto="6"))
    assert (parsed.target, parsed.ipproto) == ("192.0.2.0/24", 6)


def test_a_very_long_path_is_refused() -> None:
    assert status_of(request("/" + "a" * 2047)) == 404
    assert status_of(request("/" + "a" * 2048)) == 414


@pytest.mark.parametrize("path", ["*", "x", "https://proxy.example/", "/a b", "/\xe9"])
def test_a_path_that_is_none_is_malformed(path: str) -> None:
    with pytest.raises(PeerProtocolError):
        parse_request(request(path))


def test_another_scheme_is_refused() -> None:
    assert status_of([(name, b"http" if name == b":scheme" else value) for name, value in request()]) == 400


@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS"])
def test_another_method_is_told_which_one_is_served(method: bytes) -> None:
    headers = [(b":method", method), (b":scheme", b"https"), (b":authority", b"h"), (b":path", b"*")]
    with pytest.raises(RequestRejectedError) as caught:
        parse_request(headers)
    assert caught.value.status == 405
    assert (b"allow", b"CONNECT") in caught.value.headers


def test_a_refusal_of_the_token_names_the_scheme() -> None:
    assert reject_response(401) == [(b":status", b"401"), (b"www-authenticate", b"Bearer")]


def test_a_refusal_may_have_further_fields() -> None:
    assert reject_response(503, extra=[(b"retry-after", b"5")]) == [(b":status", b"503"), (b"retry-after", b"5")]


def test_details_of_a_refusal_cannot_break_out_of_their_string() -> None:
    (_, field) = reject_response(502, proxy_status="dns_error", details='"; error=x\r\n\\')
    assert field == (b"proxy-status", b'qtunnel; error=dns_error; details="\\"; error=x??\\\\"')


@pytest.mark.parametrize("status", [100, 200, 302, 399, 600])
def test_a_refusal_is_a_client_or_server_error(status: int) -> None:
    with pytest.raises(LocalProtocolError):
        reject_response(status)


@pytest.mark.parametrize("status", [101, 199, 204, 300, 404])
def test_a_tunnel_starts_with_a_success(status: int) -> None:
    with pytest.raises(LocalProtocolError):
        build_response(status)


def test_a_response_may_have_further_fields() -> None:
    assert build_response(201, [(b"server", b"qtunnel")])[-1] == (b"server", b"qtunnel")


def test_a_refusal_carries_what_the_proxy_says_made_safe_to_print() -> None:
    said = b'p; error=dns_error; details="\xe9\t' + b"x" * 300 + b'"'
    with pytest.raises(ResponseRejectedError) as caught:
        check_response([(b":status", b"502"), (b"proxy-status", said)])
    assert caught.value.reason.startswith('p; error=dns_error; details="xxx')
    assert len(caught.value.reason) == 200
    assert str(caught.value).startswith("status 502: p; error")


def test_a_refusal_without_a_reason_is_its_status() -> None:
    with pytest.raises(ResponseRejectedError, match=r"^status 403$"):
        check_response([(b":status", b"403")])


@pytest.mark.parametrize(
    ("status", "is_interim"), [(b"100", True), (b"103", True), (b"101", False), (b"200", False)]
)
def test_an_interim_response_is_told_from_a_final_one(status: bytes, is_interim: bool) -> None:
    assert is_interim_response([(b":status", status)]) is is_interim
