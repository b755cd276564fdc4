"""Why an inner packet or a datagram was dropped: one name a reason, one counter a name.

Nothing is lost silently: whoever drops a packet adds one to the counter of its reason, and `qtunnel status`
prints every counter that is not zero. docs/debugging.md says what each means and what to do.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

__all__ = ["DropCounts", "DropReason"]


class DropReason(StrEnum):
    """The reasons. The value is what people see."""

    # the inner packet itself
    MALFORMED = "malformed"  # not a whole, valid IPv4 or IPv6 packet (RFC 1812 §5.2.2)
    MARTIAN_SOURCE = "martian-source"  # a source nobody may use (RFC 1812 §5.3.7)
    SOURCE_NOT_ALLOWED = "source-not-allowed"  # not an assigned address nor a permitted prefix (BCP 38)
    OWN_ADDRESS_SOURCE = "own-address-source"  # claims one of this host's addresses (accept_local is on)
    DESTINATION_NOT_ALLOWED = "destination-not-allowed"  # outside the advertised routes or the scope
    PROTOCOL_NOT_ALLOWED = "protocol-not-allowed"  # outside the scope's ipproto
    LINK_LOCAL = "link-local"  # must not leave its link (RFC 9484 §7.2)
    ROUTING_HEADER = "routing-header"  # IPv6 routing header type 0 (RFC 5095)
    HOP_LIMIT = "hop-limit-exceeded"  # answered with Time Exceeded
    TOO_BIG = "too-big"  # does not fit and may not be fragmented; answered with ICMP
    NO_ROUTE = "no-route"  # nobody's address
    CLIENT_TO_CLIENT = "client-to-client-off"  # forbidden by configuration
    IPV6_UNAVAILABLE = "ipv6-unavailable"  # the tunnel cannot carry 1280 bytes
    # on the way
    NO_SESSION = "no-session"  # the tunnel is not up (yet, or any more)
    QUEUE_FULL = "queue-full"  # the sending queue's bound was reached
    QUEUE_DELAY = "queue-delay"  # dropped early, so that the queue stays short (CoDel)
    QUEUE_TOO_OLD = "queue-too-old"  # waited longer than it is worth
    DATAGRAM_TOO_LARGE = "datagram-too-large"  # the path or the peer takes less than when it was accepted
    TUN_WRITE = "tun-write-failed"  # the kernel refused it
    UDP_SEND = "udp-send-failed"  # the kernel refused it
    UDP_TOO_BIG = "udp-too-big"  # the kernel said EMSGSIZE
    UDP_BLOCKED = "udp-blocked"  # the socket buffer stayed full
    # datagrams from the peer
    UNKNOWN_CONTEXT = "unknown-context-id"
    UNKNOWN_STREAM = "unknown-stream"
    STREAM_CLOSED = "stream-closed"
    UNKNOWN_CONNECTION = "unknown-connection-id"
    BAD_UDP_DATAGRAM = "not-quic"  # nothing a QUIC endpoint could read
    HANDSHAKES_FULL = "too-many-handshakes"  # bounded; the client tries again


DropCounts = Counter[DropReason]
"""Drops by reason. Plain integers; merge with update()."""
