"""Which pseudo-headers a request carries (RFC 9114 §4.3.1 and §4.4, RFC 8441 §4): what aioquic does not check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioquic.h3.connection import MessageError

if TYPE_CHECKING:
    from qtunnel.quic.events import Headers

__all__ = ["check_request", "is_connect", "is_extended_connect", "is_success"]


def check_request(headers: Headers) -> None:
    """Check the pseudo-headers of a request.

    Raises: MessageError (aioquic's) if the request is malformed.
    """
    present = {name for name, _ in headers if name.startswith(b":")}
    if not is_connect(headers):
        if b":protocol" in present:
            raise MessageError(":protocol belongs to CONNECT")  # RFC 8441 §4
        if not {b":scheme", b":path"} <= present:
            raise MessageError(":scheme and :path are mandatory")
    elif b":protocol" in present:
        if not {b":scheme", b":path"} <= present:
            raise MessageError("extended CONNECT needs :scheme and :path")
    elif {b":scheme", b":path"} & present:
        raise MessageError("CONNECT has no :scheme and no :path")  # RFC 9114 §4.4


def is_connect(headers: Headers) -> bool:
    """Return whether the request's method is CONNECT, plain or extended."""
    return (b":method", b"CONNECT") in headers


def is_extended_connect(headers: Headers) -> bool:
    """Return whether the request is an extended CONNECT, which may define HTTP Datagrams (RFC 9297 §2)."""
    return is_connect(headers) and any(name == b":protocol" for name, _ in headers)


def is_success(headers: Headers) -> bool:
    """Return whether these are the headers of a 2xx response."""
    return any(name == b":status" and value[:1] == b"2" for name, value in headers)
