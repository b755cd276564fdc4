"""The HTTP/3 error codes this package names (RFC 9114 §8.1, RFC 9297 §5.2).

Every error here is one of the request stream, never of the connection: the other tunnels of a connection survive
(RFC 9297 §3.3). The caller resets the stream with the code.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["HttpErrorCode"]


class HttpErrorCode(IntEnum):
    """Codes for RESET_STREAM and STOP_SENDING on a request stream."""

    H3_DATAGRAM_ERROR = 0x33
    """Never sent from here; a peer may use it for a capsule it could not parse."""
    H3_NO_ERROR = 0x100
    H3_EXCESSIVE_LOAD = 0x107
    """The peer is within the protocol but beyond one of our documented bounds."""
    H3_REQUEST_CANCELLED = 0x10C
    """An abrupt end of a tunnel (RFC 9220 §3)."""
    H3_MESSAGE_ERROR = 0x10E
    """A malformed message, which a malformed capsule makes it (RFC 9297 §3.3)."""
