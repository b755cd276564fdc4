"""From the link's MTU to the largest inner packet, each header named. Sizes in bytes.

    link MTU      an IP packet on the outer link                              1500
    UDP payload   less the IP header (20 or 40) and the UDP header (8)        1472 / 1452
    inner MTU     less what QUIC, DATAGRAM and CONNECT-IP put around it       1446 / 1426

QUIC's 1200 bytes of UDP payload (RFC 9000 §14) need a link MTU of 1228 or 1248.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MIN_UDP_PAYLOAD", "base_plpmtu", "inner_mtu", "ip_udp_headers", "link_mtu", "udp_payload"]

MIN_UDP_PAYLOAD: Final = 1200
MIN_IPV6_LINK_MTU: Final = 1280  # RFC 8200 §5
IP_HEADER: Final = {4: 20, 6: 40}
UDP_HEADER: Final = 8
FIRST_BYTE: Final = 1  # of a short header (RFC 9000 §17.3)
CONNECTION_ID: Final = 4  # as we issue them
PACKET_NUMBER: Final = 2  # as we send them
AEAD_TAG: Final = 16
DATAGRAM_TYPE: Final = 1  # RFC 9221 §4; without a length, as the frame ends the packet
QUARTER_STREAM_ID: Final = 1  # RFC 9297 §2.1; the tunnel's request is a connection's first
CONTEXT_ID: Final = 1  # RFC 9484 §6


def ip_udp_headers(version: int) -> int:
    """Return what IP (4 or 6) and UDP put in front of a UDP payload."""
    return IP_HEADER[version] + UDP_HEADER


def udp_payload(mtu: int, version: int) -> int:
    """Return the UDP payload in an IP packet of mtu bytes of this IP version."""
    return mtu - ip_udp_headers(version)


def link_mtu(payload: int, version: int) -> int:
    """Return the size of the IP packet that carries a UDP payload."""
    return payload + ip_udp_headers(version)


def base_plpmtu(version: int) -> int:
    """Return the UDP payload that a path of this IP version has to carry to be of use (RFC 8899 §5.1.2).

    QUIC's minimum; over IPv6 what its own minimum of 1280 bytes leaves, as no IPv6 path may be narrower.
    """
    return MIN_UDP_PAYLOAD if version == 4 else udp_payload(MIN_IPV6_LINK_MTU, version)


def inner_mtu(payload: int, *, connection_id: int = CONNECTION_ID, packet_number: int = PACKET_NUMBER) -> int:
    """Return the largest inner packet in one UDP payload.

    connection_id: bytes of the id the peer gave us to send to; packet_number: bytes of it on the wire.
    """
    packet = FIRST_BYTE + connection_id + packet_number + AEAD_TAG
    return payload - packet - DATAGRAM_TYPE - QUARTER_STREAM_ID - CONTEXT_ID
