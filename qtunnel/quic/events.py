"""What one HTTP/3 connection reports, in order, through next_event().

PacketsReceived and DatagramsReceived carry a whole burst: there is one of each per stream and receive call.
ConnectionClosed is the last event of a connection and comes exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qtunnel.packet_run import Packets

__all__ = [
    "CloseCause",
    "ConnectionClosed",
    "DataReceived",
    "DatagramsReceived",
    "GoawayReceived",
    "HandshakeCompleted",
    "Headers",
    "HeadersReceived",
    "HttpEvent",
    "PacketsReceived",
    "SettingsReceived",
    "StreamReset",
]

Headers = list[tuple[bytes, bytes]]
"""Header fields in order, pseudo-headers first, names in lower case."""


class CloseCause(StrEnum):
    """Who or what ended the connection."""

    LOCAL = "local"  # we closed it: the application, or because the peer broke a rule (see error_code)
    PEER = "peer"  # the peer sent CONNECTION_CLOSE
    IDLE_TIMEOUT = "idle-timeout"  # nothing arrived for the idle timeout (RFC 9000 §10.1)
    HANDSHAKE_TIMEOUT = "handshake-timeout"  # no handshake within the limit
    STATELESS_RESET = "stateless-reset"  # the peer lost its state, such as by a restart (RFC 9000 §10.3)
    NOT_VERIFIED = "not-verified"  # the certificate is not the expected one; nothing was sent to the server
    TLS_ALERT = "tls-alert"  # any other failure of the TLS handshake, on either side


@dataclass(frozen=True, slots=True)
class HandshakeCompleted:
    """The handshake is complete and the peer verified; no request has left yet.

    peer_certificate: DER; None on a server, which asks for none.
    """

    peer_certificate: bytes | None


@dataclass(frozen=True, slots=True)
class SettingsReceived:
    """The peer's SETTINGS came. Each flag says whether the extension may be used now (RFC 9220, RFC 9297)."""

    extended_connect: bool
    datagrams: bool


@dataclass(frozen=True, slots=True)
class HeadersReceived:
    """A header section: a request, a response (also an interim one) or trailers. end: nothing follows it."""

    stream_id: int
    headers: Headers
    end: bool


@dataclass(frozen=True, slots=True)
class DataReceived:
    """Content of DATA frames; frame boundaries mean nothing. end: the peer finished its side of the stream."""

    stream_id: int
    data: bytes
    end: bool


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The request stream was aborted, by the peer or because it broke a rule; both directions are over."""

    stream_id: int
    error_code: int


@dataclass(frozen=True, slots=True)
class PacketsReceived:
    """Inner packets of a stream registered with register_packet_stream, prefix stripped, in order of arrival."""

    stream_id: int
    packets: Packets


@dataclass(frozen=True, slots=True)
class PacketSizeChanged:
    """Packets may, or must, have another size from now on: ask max_packet_size."""


@dataclass(frozen=True, slots=True)
class PacketsReturned:
    """Inner packets that were queued to be sent when the path became narrower: they no longer fit it."""

    stream_id: int
    packets: Packets


@dataclass(frozen=True, slots=True)
class DatagramsReceived:
    """HTTP Datagram payloads of a registered stream that do not begin with its prefix."""

    stream_id: int
    payloads: Packets


@dataclass(frozen=True, slots=True)
class GoawayReceived:
    """The peer takes no new requests. Requests with this id or a higher one were not processed (RFC 9114 §5.2)."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection is over.

    error_code: HTTP/3 code if is_application, else QUIC's (RFC 9000 §20). reason: for people; not trustworthy
    when cause is PEER.
    """

    cause: CloseCause
    error_code: int
    is_application: bool
    reason: str


HttpEvent = (
    HandshakeCompleted
    | SettingsReceived
    | HeadersReceived
    | DataReceived
    | StreamReset
    | PacketsReceived
    | PacketSizeChanged
    | PacketsReturned
    | DatagramsReceived
    | GoawayReceived
    | ConnectionClosed
)
