"""The Context ID in front of every HTTP Datagram of a tunnel (RFC 9484 §5 and §6).

Context 0 is one whole IP packet. qtunnel registers no other, so every other one is dropped and counted, never an
error: a peer may send datagrams of an extension before it knows that we lack it. They are dropped rather than kept
for a round trip, as no registration can come that would make them readable.
"""

from __future__ import annotations

from typing import Final

from qtunnel.drops import DropCounts, DropReason
from qtunnel.errors import LocalProtocolError
from qtunnel.masque.varint import MAX_VARINT, decode_varint

__all__ = ["CONTEXT_PREFIX", "IP_PACKET_CONTEXT_ID", "ContextAllocator", "parse_datagram"]

IP_PACKET_CONTEXT_ID: Final = 0

CONTEXT_PREFIX: Final = b"\x00"
"""What goes in front of an inner packet to make it an HTTP Datagram payload: Context ID 0."""


def parse_datagram(payload: bytes, drops: DropCounts) -> bytes | None:
    """Return the inner packet in an HTTP Datagram payload, or None after adding to drops why there is none.

    The inner packet may be empty: that is legal framing, and a packet the IP layer drops as malformed.
    """
    context = decode_varint(payload)
    if context is None:
        drops[DropReason.MALFORMED] += 1
        return None
    context_id, offset = context
    if context_id != IP_PACKET_CONTEXT_ID:
        drops[DropReason.UNKNOWN_CONTEXT] += 1
        return None
    return payload[offset:]


class ContextAllocator:
    """Gives out Context IDs of one request: even ones from 2 for the client, odd ones from 1 for the proxy.

    An ID is given out once and never taken back (RFC 9484 §5). Whoever allocated it, both ends may use it.
    """

    def __init__(self, *, is_client: bool) -> None:
        self._next = 2 if is_client else 1

    def allocate(self) -> int:
        """Return an ID not given out before.

        Raises:
            LocalProtocolError: all 2^61 are used.
        """
        if self._next > MAX_VARINT:
            raise LocalProtocolError("no Context ID is left for this request")
        context_id = self._next
        self._next += 2
        return context_id
