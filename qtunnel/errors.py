"""The one exception tree.

    QTunnelError
    ├── LocalProtocolError       we misused the protocol: a bug or a call out of order
    ├── PeerProtocolError        the peer broke a rule; carries the error code to close with
    ├── ConfigError              a setting cannot be used; names the field
    ├── SystemSetupError         a command, module or permission is missing; says what to type
    │   └── TunLostError         another program deleted the TUN, or took it down
    ├── AuthenticationError      the server does not know our token
    ├── ServerNotVerifiedError   the server's certificate is not the expected one
    ├── ConnectionFailedError    no server answered, or it closed before the tunnel was up
    ├── NetworkOverlapError      the tunnel's addresses are already in use on this host
    ├── StateError               what is kept on disk cannot be read, trusted or written
    ├── EntryError               no user or profile of that name, or there is one already
    ├── NotRunningError          no running tunnel answers on its control socket
    ├── AlreadyRunningError      a tunnel of that name runs already
    ├── MalformedPacketError     bytes that are no whole, valid IP packet; where it is data, a counted drop
    └── DatagramTooLargeError    the packet does not fit; carries the size that would

A dropped packet is not an error: it is a counter with a reason (qtunnel.drops).
"""

from __future__ import annotations


class QTunnelError(Exception):
    """Everything this package raises on purpose."""


class LocalProtocolError(QTunnelError):
    """A call that the protocol does not allow in this state."""


class PeerProtocolError(QTunnelError):
    """The peer broke a rule of the protocol.

    error_code is the HTTP/3 (RFC 9114 §8.1) or QUIC (RFC 9000 §20) code the stream or connection is closed
    with; whether it is the stream or the connection is the caller's knowledge.
    """

    def __init__(self, message: str, *, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


class ConfigError(QTunnelError, ValueError):
    """A setting cannot be used. field names it as the configuration file spells it.

    It is a ValueError too, so that a validator of many settings can go on and collect the next one.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class SystemSetupError(QTunnelError):
    """The host lacks a command, a kernel feature or a permission.

    problem: the message without the remedy. remedy says what to type.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{message}. {remedy}" if remedy else message)
        self.problem = message
        self.remedy = remedy


class TunLostError(SystemSetupError):
    """Another program deleted the TUN, or took it down, and its routes went with it."""


class AuthenticationError(QTunnelError):
    """The server refused our token."""


class ServerNotVerifiedError(QTunnelError):
    """The server's certificate is not the one expected, so nothing was sent to it."""


class ConnectionFailedError(QTunnelError):
    """The tunnel could not be established, or ended. is_final: trying again cannot help."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class NetworkOverlapError(QTunnelError):
    """A network of the tunnel is already in use on this host."""


class StateError(QTunnelError):
    """What is kept on disk (identity, users, profiles) cannot be read, trusted or written."""


class EntryError(QTunnelError):
    """There is no user or profile of that name, or there is one already."""


class NotRunningError(QTunnelError):
    """No running tunnel answers on its control socket."""


class AlreadyRunningError(QTunnelError):
    """A tunnel of that name runs already on this host."""


class MalformedPacketError(QTunnelError):
    """Bytes that are not one whole, valid IPv4 or IPv6 packet."""


class DatagramTooLargeError(QTunnelError):
    """A packet does not fit into one datagram. max_payload is the largest that does, in bytes."""

    def __init__(self, message: str, *, max_payload: int) -> None:
        super().__init__(message)
        self.max_payload = max_payload
