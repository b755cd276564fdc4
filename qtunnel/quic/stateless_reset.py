"""Stateless resets: telling a peer that its connection is gone without knowing anything about it (RFC 9000 §10.3).

The token of a connection id is an HMAC of it, so a server that restarted still knows the token it once gave out.
A reset is shorter than the packet that caused it and rate-limited, so two endpoints cannot keep each other busy.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from qtunnel.quic.token_bucket import TokenBucket

if TYPE_CHECKING:
    from qtunnel.quic.settings import RandomBytes

__all__ = ["MIN_RESET_SIZE", "TOKEN_SIZE", "StatelessResetter", "reset_token"]

TOKEN_SIZE: Final = 16
MIN_RESET_SIZE: Final = 5 + TOKEN_SIZE
"""Bytes of the smallest reset that passes for a packet (RFC 9000 §10.3)."""
USUAL_RESET_SIZE: Final = 43
"""A reset is no longer than this: enough to be mistaken for a packet with the longest connection id."""
RESETS_PER_SECOND: Final = 100.0


def reset_token(key: bytes, connection_id: bytes) -> bytes:
    """Return the 16-byte stateless reset token of one of our connection ids."""
    return hmac.digest(key, connection_id, "sha256")[:TOKEN_SIZE]


class StatelessResetter:
    """Builds the answers to short-header packets nobody knows."""

    def __init__(self, *, key: bytes, random_bytes: RandomBytes) -> None:
        self._key = key
        self._random_bytes = random_bytes
        self._limit = TokenBucket(rate=RESETS_PER_SECOND, burst=RESETS_PER_SECOND)

    def answer(self, datagram: bytes, connection_id: bytes, now: float) -> bytes | None:
        """Return the reset for a datagram, or None if it is too short to answer or the rate is used up."""
        size = min(len(datagram) - 1, USUAL_RESET_SIZE)
        if size < MIN_RESET_SIZE or not self._limit.allow(now):
            return None
        unpredictable = bytearray(self._random_bytes(size - TOKEN_SIZE))
        unpredictable[0] = 0x40 | (unpredictable[0] & 0x3F)  # a short header with the fixed bit
        return bytes(unpredictable) + reset_token(self._key, connection_id)
