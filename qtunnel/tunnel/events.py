"""What a tunnel tells its owner: one typed, frozen event for each thing that happened.

Client and server share the stream; which events a role emits is said in each docstring. `time` is the loop's
monotonic clock in seconds, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qtunnel.config import IPAddress, IPInterface, IPNetwork

__all__ = [
    "AddressesChanged",
    "CloseReason",
    "Closed",
    "Connected",
    "Connecting",
    "Disconnected",
    "InnerMtuChanged",
    "Ipv6Refused",
    "PrefixesChanged",
    "RequestRefused",
    "ResolveName",
    "RoutesChanged",
    "ServerVerified",
    "SessionClosed",
    "SessionOpened",
    "TunnelEvent",
]


class CloseReason(StrEnum):
    """Why a tunnel or a session ended."""

    LOCAL = "closed here"
    PEER = "closed by the peer"
    IDLE = "nothing heard for the idle timeout"
    NO_ANSWER = "no answer"
    RESET = "the peer has forgotten this connection"
    NOT_VERIFIED = "the server could not be verified"
    TLS = "the TLS handshake failed"
    AUTHENTICATION = "the token was refused"
    REFUSED = "the request was refused"
    UNSUPPORTED = "the peer lacks a needed feature"
    PROTOCOL = "the peer broke the protocol"
    NO_ADDRESS = "no address was assigned"
    REPLACED = "replaced by a newer connection of the same user"
    USER_REMOVED = "the user was removed or has a new token"
    SHUTDOWN = "the server is shutting down"


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelEvent:
    """Base of all events."""

    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting(TunnelEvent):
    """Client: an attempt began towards one address of the server."""

    remote: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVerified(TunnelEvent):
    """Client: the server is the expected one; the token has not been sent yet."""

    remote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(TunnelEvent):
    """Client: the tunnel carries packets from now on."""

    remote: str
    addresses: tuple[IPInterface, ...]
    inner_mtu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressesChanged(TunnelEvent):
    """Client: the server's newest complete list of our addresses (RFC 9484 §4.7.1)."""

    addresses: tuple[IPInterface, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutesChanged(TunnelEvent):
    """Client: the server's newest complete list of routes (RFC 9484 §4.7.3), as prefixes."""

    routes: tuple[IPNetwork, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerMtuChanged(TunnelEvent):
    """Both: the largest inner packet changed. user is set on a server."""

    old: int
    new: int
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ipv6Refused(TunnelEvent):
    """Both: no IPv6 inside, because 1280 bytes do not get through (RFC 9484 §7.2). user is set on a server."""

    reason: str
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(TunnelEvent):
    """Client core: this connection is over. text is a whole sentence for a person."""

    reason: CloseReason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected(TunnelEvent):
    """Client: the tunnel is down; retry_in seconds until the next attempt, None when there is none."""

    reason: CloseReason
    text: str
    retry_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(TunnelEvent):
    """Server: a user's tunnel is up."""

    user: str
    remote: str
    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed(TunnelEvent):
    """Server: a user's tunnel ended."""

    user: str
    remote: str
    reason: CloseReason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixesChanged(TunnelEvent):
    """Server: the networks behind a user's client that are routed to it now; refused ones are not permitted."""

    user: str
    prefixes: tuple[IPNetwork, ...]
    refused: tuple[IPNetwork, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefused(TunnelEvent):
    """Server: a request was answered with an error status."""

    remote: str
    status: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveName(TunnelEvent):
    """Server core: a request's target is a host name; call ServerTunnel.name_resolved with this number."""

    number: int
    name: str
