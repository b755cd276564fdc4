"""Which packets belong together: one key a packet, for a whole burst, for whoever must not reorder a flow.

The key is the 5-tuple. A fragment other than the first has no ports, so all fragments of a packet, the first too,
share a key made of the identification: they stay together, if not with the rest of their flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qtunnel.errors import MalformedPacketError
from qtunnel.ip.header import parse_header

__all__ = ["MALFORMED_FLOW", "FlowKey", "flow_keys"]

FlowKey = bytes
"""Opaque, hashable, the same in every run. Each direction of a connection is a flow of its own."""

MALFORMED_FLOW: Final[FlowKey] = b""
"""The key of every packet that is none; Forwarder lets no such packet through."""

_WITH_PORTS: Final = frozenset((6, 17, 33, 50, 132, 136))
"""TCP, UDP, DCCP, SCTP and UDP-Lite begin with two ports; ESP with its SPI, which serves as well."""


def flow_keys(packets: Sequence[bytes]) -> list[FlowKey]:
    """Return the flow key of each packet, in a list parallel to packets."""
    keys: list[FlowKey] = []
    append = keys.append
    with_ports = _WITH_PORTS
    for packet in packets:
        # A plain IPv4 or IPv6 packet with ports right behind the addresses, which is nearly every one.
        length = len(packet)
        if length >= 24 and packet[0] == 0x45:
            if packet[9] in with_ports and not (packet[6] & 0x3F or packet[7]):
                append(b"%b%b" % (packet[9:10], packet[12:24]))
                continue
        elif length >= 44 and packet[0] >> 4 == 6 and packet[6] in with_ports:
            append(b"%b%b" % (packet[6:7], packet[8:44]))
            continue
        append(_flow_key(packet))
    return keys


def _flow_key(packet: bytes) -> FlowKey:
    try:
        header = parse_header(packet)
    except MalformedPacketError:
        return MALFORMED_FLOW
    key = b"%c%b%b" % (header.protocol, header.source, header.destination)
    if header.is_fragment:
        return b"%bfragment%b" % (key, header.identification.to_bytes(4, "big"))
    ports = header.header_length + 4
    if header.protocol in _WITH_PORTS and len(packet) >= ports:
        return key + packet[header.header_length : ports]
    return key
