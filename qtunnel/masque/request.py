"""The extended CONNECT request of a tunnel and its answer, both sides (RFC 9484 §4.1, §4.4 to §4.6).

Three outcomes for what a client sends:

    a ConnectIpRequest    may have a tunnel, if the token is good
    RequestRejectedError  answer with its status and headers: 405 or 501 for another method or protocol, 404 for
                          another path, 400 for a bad target or ipproto
    PeerProtocolError     malformed: reset the stream (RFC 9114 §4.1.2)

A bad target or ipproto makes a request malformed as well (RFC 9484 §4.1). It is answered with 400 rather than
reset, which RFC 9114 §4.1.2 leaves to a server, as a person may have mistyped it and can read the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from qtunnel.config import IPNetwork
from qtunnel.errors import ConfigError, LocalProtocolError, QTunnelError
from qtunnel.masque.header_fields import FieldSection, Headers, malformed, parse_field_section
from qtunnel.masque.scope import InvalidScopeError, Scope, parse_scope
from qtunnel.masque.structured_field import parse_boolean_item, serialize_string
from qtunnel.masque.uri_template import DEFAULT_PATH_PREFIX, WILDCARD, UriTemplate

__all__ = [
    "ConnectIpRequest",
    "Headers",
    "RequestRejectedError",
    "ResponseRejectedError",
    "build_request",
    "build_response",
    "check_response",
    "is_interim_response",
    "parse_request",
    "reject_response",
]

PROTOCOL: Final = b"connect-ip"
CAPSULE_PROTOCOL: Final = (b"capsule-protocol", b"?1")
PROXY_NAME: Final = b"qtunnel"
"""Who we are in Proxy-Status."""

REQUEST_PSEUDO: Final = frozenset((b":method", b":scheme", b":authority", b":path", b":protocol"))
RESPONSE_PSEUDO: Final = frozenset((b":status",))
CAPSULE_FORBIDDEN_STATUS: Final = frozenset((204, 205, 206))
"""Success without content or with a part of it: never in capsule mode (RFC 9297 §3.2)."""

MAX_PATH_LENGTH: Final = 2048
BEARER: Final = re.compile(rb"bearer +([!-~]+)", re.IGNORECASE)
"""Any visible ASCII, not only the token68 of RFC 6750 §2.1: keys of other implementations are free text."""
UPGRADE_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?")
ORIGIN_FORM: Final = re.compile(rb"/[!-~]*")
AUTHORITY: Final = re.compile(rb"[!-?A-~]+")
PERCENT_ENCODED: Final = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")
STATUS: Final = re.compile(rb"[1-5][0-9]{2}")
MAX_DETAILS_LENGTH: Final = 200


class RequestRejectedError(QTunnelError):
    """A request to be answered with an error. Send headers, with the end of the stream."""

    def __init__(self, message: str, *, status: int, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.headers = reject_response(status, extra=extra)


class ResponseRejectedError(QTunnelError):
    """The proxy said no. status is its HTTP status, reason what it gives as one, possibly empty."""

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(f"status {status}: {reason}" if reason else f"status {status}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectIpRequest:
    """A well-formed request for a tunnel. Whether its token is good is the caller's to find out.

    authority: the proxy as the client calls it; nothing is ever connected to it. target: as sent, decoded.
    ipproto: None for any protocol. token: None where there is none or it is no bearer token. capsule_protocol:
    whether the request said ?1; false is no fault (RFC 9297 §3.4).
    """

    authority: str
    target: str
    ipproto: int | None
    token: str | None = field(repr=False)
    capsule_protocol: bool
    scope: Scope

    @property
    def target_network(self) -> IPNetwork | None:
        """Return the network the request is limited to, if it names one."""
        return self.scope.network

    @property
    def target_name(self) -> str | None:
        """Return the host name the request is limited to, if it names one; resolve it before answering."""
        return self.scope.name


def build_request(
    *, template: UriTemplate, target: str = WILDCARD, ipproto: str = WILDCARD, token: str | None = None
) -> Headers:
    """Return the request, pseudo-header fields first. target and ipproto are plain text, not percent-encoded.

    Raises:
        ConfigError: target or ipproto is none (RFC 9484 §4.6), or token cannot stand in a field.
    """
    try:
        parse_scope(target, ipproto)
    except InvalidScopeError as error:
        raise ConfigError(error.message, field=error.field) from error
    authority, path = template.expand(target, ipproto)
    headers = [
        (b":method", b"CONNECT"),
        (b":protocol", PROTOCOL),
        (b":scheme", template.scheme.encode("ascii")),
        (b":authority", authority.encode("ascii")),
        (b":path", path.encode("ascii")),
        CAPSULE_PROTOCOL,
    ]
    if token is not None:
        value = b"Bearer " + token.encode("ascii", "replace")
        if not token.isascii() or BEARER.fullmatch(value) is None:
            raise ConfigError("must be printable ASCII without spaces", field="token")
        headers.append((b"authorization", value))
    return headers


def parse_request(headers: Headers, *, path_prefix: str = DEFAULT_PATH_PREFIX) -> ConnectIpRequest:
    """Return what a client asks for.

    path_prefix: where tunnels are served. Behind it target and ipproto may follow as path segments or as query
    parameters of these names; what is missing is "*".

    Raises:
        RequestRejectedError: answer with its headers and the end of the stream.
        PeerProtocolError: the request is malformed; reset the stream with its error_code.
    """
    section = parse_field_section(headers, REQUEST_PSEUDO)
    _check_pseudo_fields(section)
    section.check_no_content()
    pseudo = section.pseudo
    if pseudo[b":method"] != b"CONNECT":
        raise RequestRejectedError(
            f"the method is {pseudo[b':method'].decode('latin-1')}, only CONNECT is served",
            status=405,
            extra=((b"allow", b"CONNECT"),),
        )
    protocol = pseudo.get(b":protocol")
    if protocol is None or protocol.lower() != PROTOCOL:
        raise RequestRejectedError(f"the protocol is {protocol!r}, only connect-ip is served", status=501)
    if pseudo[b":scheme"].lower() != b"https":
        raise RequestRejectedError("the scheme is not https", status=400)
    target, ipproto = _parse_variables(pseudo[b":path"].decode("ascii"), path_prefix.rstrip("/"))
    try:
        scope = parse_scope(target, ipproto)
    except InvalidScopeError as error:
        raise RequestRejectedError(str(error), status=400) from error
    return ConnectIpRequest(
        authority=pseudo[b":authority"].decode("ascii"),
        target=target,
        ipproto=scope.protocol,
        token=_parse_token(section),
        capsule_protocol=parse_boolean_item(section.values(b"capsule-protocol")) is True,
        scope=scope,
    )


def build_response(status: int = 200, extra: Sequence[tuple[bytes, bytes]] = ()) -> Headers:
    """Return the answer that the tunnel is there.

    Raises:
        LocalProtocolError: status is not a 2xx that may start capsules (RFC 9297 §3.2); see reject_response.
    """
    if not 200 <= status <= 299 or status in CAPSULE_FORBIDDEN_STATUS:
        raise LocalProtocolError(f"status {status} cannot start a tunnel (2xx without 204, 205, 206)")
    return [(b":status", b"%d" % status), CAPSULE_PROTOCOL, *extra]


def reject_response(
    status: int,
    *,
    proxy_status: str | None = None,
    details: str | None = None,
    extra: Sequence[tuple[bytes, bytes]] = (),
) -> Headers:
    """Return the answer that there is no tunnel. It never has Capsule-Protocol (RFC 9297 §3.4).

    proxy_status: an error type of RFC 9209 §2.3, such as dns_error. details: a sentence for people, sent along
    with it. A 401 names the scheme we take, as RFC 9110 §11.6.1 asks.

    Raises:
        LocalProtocolError: status is no 4xx or 5xx.
    """
    if not 400 <= status <= 599:
        raise LocalProtocolError(f"status {status} is no refusal (400 to 599)")
    headers = [(b":status", b"%d" % status)]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if proxy_status is not None:
        value = PROXY_NAME + b"; error=" + proxy_status.encode("ascii")
        if details is not None:
            value += b"; details=" + serialize_string(details)
        headers.append((b"proxy-status", value))
    return [*headers, *extra]


def is_interim_response(headers: Headers) -> bool:
    """Say whether this is a 1xx other than 101, after which the real answer is still to come."""
    return any(
        name == b":status" and len(value) == 3 and value[:1] == b"1" and value != b"101" for name, value in headers
    )


def check_response(headers: Headers) -> None:
    """Return if the tunnel is there; a missing Capsule-Protocol is no fault (RFC 9297 §3.4).

    Raises:
        ResponseRejectedError: any status but a success, also 3xx: no redirect is followed (RFC 9484 §4.5).
        PeerProtocolError: the answer is malformed; reset the stream with its error_code.
    """
    section = parse_field_section(headers, RESPONSE_PSEUDO)
    text = section.pseudo.get(b":status", b"")
    if STATUS.fullmatch(text) is None or text == b"101":
        raise malformed(f"the response has the status {text!r}")
    status = int(text)
    if not 200 <= status <= 299:
        raise ResponseRejectedError(status, _reason(section))
    if status in CAPSULE_FORBIDDEN_STATUS:
        raise malformed(f"the response has status {status}, which cannot start capsules")
    section.check_no_content()


def _check_pseudo_fields(section: FieldSection) -> None:
    """Check that a request has the pseudo-header fields its method needs and no others (RFC 9114 §4.3.1, §4.4)."""
    pseudo = section.pseudo
    if not pseudo.get(b":method"):
        raise malformed("a request without :method")
    is_connect = pseudo[b":method"] == b"CONNECT"
    if b":protocol" in pseudo and not is_connect:
        raise malformed("a request with :protocol that is no CONNECT")
    if is_connect and b":protocol" not in pseudo:
        if b":scheme" in pseudo or b":path" in pseudo:
            raise malformed("a CONNECT without :protocol has neither :scheme nor :path")
    elif not pseudo.get(b":scheme") or not pseudo.get(b":path"):
        raise malformed("a request without :scheme or :path")
    elif ORIGIN_FORM.fullmatch(pseudo[b":path"]) is None and is_connect:
        raise malformed("a request whose :path does not begin with a slash")
    if is_connect:
        _check_authority(section)
    if b":protocol" in pseudo and UPGRADE_TOKEN.fullmatch(pseudo[b":protocol"]) is None:
        raise malformed("a :protocol that is not one token")


def _check_authority(section: FieldSection) -> None:
    authority = section.pseudo.get(b":authority", b"")
    if AUTHORITY.fullmatch(authority) is None:
        raise malformed("a request whose :authority is missing or names a user")
    if any(value != authority for value in section.values(b"host")):
        raise malformed("a request whose host is not its :authority")


def _parse_variables(path: str, path_prefix: str) -> tuple[str, str]:
    """Return target and ipproto, decoded, out of a request's :path."""
    if len(path) > MAX_PATH_LENGTH:
        raise RequestRejectedError(f"the path has {len(path)} bytes, at most {MAX_PATH_LENGTH}", status=414)
    path, _, query = path.partition("?")
    rest = path.removeprefix(path_prefix)
    if not path.startswith(path_prefix) or rest[:1] not in ("", "/"):
        raise RequestRejectedError("no tunnel is served at this path", status=404)
    segments = rest.removeprefix("/").removesuffix("/").split("/") if rest not in ("", "/") else []
    if len(segments) > 2:
        raise RequestRejectedError("no tunnel is served at this path", status=404)
    found = list(zip(("target", "ipproto"), segments, strict=False))
    pairs = [pair.partition("=") for pair in query.split("&")]
    found += [(name, value) for name, _, value in pairs if name in ("target", "ipproto")]
    variables = dict(found)
    if len(variables) < len(found):
        raise RequestRejectedError("target or ipproto is there twice", status=400)
    return _decode(variables.get("target", WILDCARD)), _decode(variables.get("ipproto", WILDCARD))


def _decode(text: str) -> str:
    """Decode percent-encoding once. What is not ASCII then is in no target and no ipproto."""
    if PERCENT_ENCODED.fullmatch(text) is None:
        raise RequestRejectedError(f"{text[:80]!r} is not percent-encoded properly", status=400)
    try:
        return unquote_to_bytes(text).decode("ascii")
    except UnicodeDecodeError as error:
        raise RequestRejectedError(f"{text[:80]!r} holds more than ASCII", status=400) from error


def _parse_token(section: FieldSection) -> str | None:
    values = section.values(b"authorization")
    if len(values) > 1:
        raise RequestRejectedError("authorization is there twice", status=400)
    match = BEARER.fullmatch(values[0]) if values else None
    return None if match is None else match[1].decode("ascii")


def _reason(section: FieldSection) -> str:
    """Return what the proxy says about its refusal, made safe to print."""
    text = b", ".join(section.values(b"proxy-status")).decode("latin-1")
    return "".join(char for char in text if " " <= char <= "~")[:MAX_DETAILS_LENGTH]
