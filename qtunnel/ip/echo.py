"""Echo requests and replies: the answer to a ping, and the probe of RFC 9484 §7.2 (RFC 792, RFC 4443 §4).

That probe, with 1232 bytes of data, is an IPv6 packet of 1280 bytes. Where the peer's address is not known it goes
to ff02::1, all nodes on the link, and the link is the tunnel.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from struct import Struct
from typing import Final

from qtunnel.config import IPAddress
from qtunnel.errors import LocalProtocolError, MalformedPacketError
from qtunnel.ip.address import is_martian_source
from qtunnel.ip.checksum import internet_checksum, pseudo_header6
from qtunnel.ip.header import ICMP, ICMPV6, IpHeader, build_ipv4_header, parse_header
from qtunnel.ip.icmp import build_icmp6

__all__ = ["ALL_NODES", "EchoReply", "answer_echo", "build_echo_request6", "is_echo", "parse_echo_reply"]

ALL_NODES: Final = IPv6Address("ff02::1").packed
"""All nodes on the link (RFC 4291 §2.7.1)."""

_ECHO_REPLY4: Final = 0
_ECHO_REQUEST4: Final = 8
_ECHO_REQUEST6: Final = 128
_ECHO_REPLY6: Final = 129
_ECHO: Final = Struct(">BBHHH")
_MAX_DATA_LENGTH: Final = 0xFFFF - _ECHO.size


@dataclass(frozen=True, slots=True)
class EchoReply:
    """An answer to an echo request. Addresses are packed; data is what the request carried."""

    source: bytes
    destination: bytes
    identifier: int
    sequence: int
    data: bytes


def build_echo_request6(
    source: IPv6Address, destination: IPv6Address, identifier: int, sequence: int, data_length: int = 1232
) -> bytes:
    """Return an ICMPv6 echo request of 48 + data_length bytes. identifier and sequence: 16 bits each.

    Raises: LocalProtocolError if a number is out of range.
    """
    if not (0 <= identifier <= 0xFFFF and 0 <= sequence <= 0xFFFF):
        raise LocalProtocolError(f"identifier {identifier} and sequence {sequence} are 0 to 65535 each")
    if not 0 <= data_length <= _MAX_DATA_LENGTH:
        raise LocalProtocolError(f"{data_length} bytes of data, not 0 to {_MAX_DATA_LENGTH}")
    # Counting bytes make a cut or shifted answer visible.
    data = (bytes(range(256)) * (data_length // 256 + 1))[:data_length]
    message = _ECHO.pack(_ECHO_REQUEST6, 0, 0, identifier, sequence) + data
    return build_icmp6(message, source=source.packed, destination=destination.packed)


def parse_echo_reply(packet: bytes) -> EchoReply | None:
    """Return the echo reply that this packet is; None if it is anything else, or its checksum is wrong."""
    header = _parse_echo(packet)
    if header is None or packet[header.header_length] not in (_ECHO_REPLY4, _ECHO_REPLY6):
        return None
    _, _, _, identifier, sequence = _ECHO.unpack_from(packet, header.header_length)
    data = packet[header.header_length + _ECHO.size :]
    return EchoReply(header.source, header.destination, identifier, sequence, data)


def answer_echo(packet: bytes, own_address: IPAddress) -> bytes | None:
    """Return the reply to an echo request that is for own_address, or to ff02::1 where that is IPv6; else None.

    The reply carries the data unmodified and comes from own_address, never from a group (RFC 4443 §4.2). A request
    in fragments gets none, nor one from an address that is no single host's. IPv4 options are not returned.
    """
    header = _parse_echo(packet)
    own = own_address.packed
    if header is None or header.version != own_address.version or header.source == own:
        return None
    if header.destination != own and header.destination != ALL_NODES:
        return None
    if packet[header.header_length] not in (_ECHO_REQUEST4, _ECHO_REQUEST6) or is_martian_source(header.source):
        return None
    rest = packet[header.header_length + 4 :]
    if header.version == 6:
        traffic_class = (packet[0] << 4 | packet[1] >> 4) & 0xFC
        message = b"%c\x00\x00\x00%b" % (_ECHO_REPLY6, rest)
        return build_icmp6(message, source=own, destination=header.source, traffic_class=traffic_class)
    checksum = internet_checksum(b"%c\x00\x00\x00%b" % (_ECHO_REPLY4, rest)).to_bytes(2, "big")
    reply_header = build_ipv4_header(
        source=own,
        destination=header.source,
        protocol=ICMP,
        payload_length=4 + len(rest),
        tos=packet[1] & 0xFC,
        identification=header.identification,
        dont_fragment=header.dont_fragment,
    )
    return b"%b%c\x00%b%b" % (reply_header, _ECHO_REPLY4, checksum, rest)


def is_echo(packet: bytes) -> bool:
    """Return whether this is a whole echo request or reply."""
    return _parse_echo(packet) is not None


def _parse_echo(packet: bytes) -> IpHeader | None:
    """Return the header of a whole echo request or reply with the right checksum, else None."""
    try:
        header = parse_header(packet)
    except MalformedPacketError:
        return None
    message = packet[header.header_length :]
    if header.is_fragment or len(message) < _ECHO.size or message[1] != 0:
        return None
    if header.version == 4:
        is_one = header.protocol == ICMP and message[0] in (_ECHO_REQUEST4, _ECHO_REPLY4)
        return header if is_one and internet_checksum(message) == 0 else None
    if header.protocol != ICMPV6 or message[0] not in (_ECHO_REQUEST6, _ECHO_REPLY6):
        return None
    pseudo_header = pseudo_header6(header.source, header.destination, len(message), ICMPV6)
    return header if internet_checksum(pseudo_header + message) == 0 else None
