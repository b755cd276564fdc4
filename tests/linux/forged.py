"""Packets no kernel would send as they are: built byte by byte, and put into an interface as if routed there."""

from __future__ import annotations

import re
import socket
import struct
from ipaddress import ip_address

from tests.linux.namespaces import Namespace
from tests.unit.linux.packets import checksum

_ETHERTYPE = {4: 0x0800, 6: 0x86DD}
_UDP = 17


def udp_packet(
    source: str,
    destination: str,
    *,
    size: int = 100,
    traffic_class: int = 0,
    ttl: int = 64,
    ports: tuple[int, int] = (4000, 5000),
) -> bytes:
    """Return an IP packet of size bytes with a UDP datagram, DF set; of the family of the two addresses."""
    sender, receiver = ip_address(source), ip_address(destination)
    header_size = 20 if sender.version == 4 else 40
    length = size - header_size
    datagram = bytearray(struct.pack("!HHHH", *ports, length, 0).ljust(length, b"q"))
    pseudo = sender.packed + receiver.packed + struct.pack("!II", length, _UDP)
    struct.pack_into("!H", datagram, 6, checksum(pseudo + datagram) or 0xFFFF)
    if sender.version == 6:
        first = 6 << 28 | traffic_class << 20
        header = struct.pack("!IHBB16s16s", first, length, _UDP, ttl, sender.packed, receiver.packed)
        return header + datagram
    filled = bytearray(
        struct.pack(
            "!BBHHHBBH4s4s",
            *(0x45, traffic_class, size, 7, 0x4000, ttl, _UDP, 0),
            *(sender.packed, receiver.packed),
        )
    )
    struct.pack_into("!H", filled, 10, checksum(bytes(filled)))
    return bytes(filled) + datagram


def inject(host: Namespace, interface: str, *packets: bytes) -> None:
    """Send packets by an interface exactly as they are; into a TUN they come as if the kernel had routed them."""
    for packet in packets:
        ethertype = _ETHERTYPE[packet[0] >> 4]
        with host.entered():
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        with sock:
            sock.bind((interface, ethertype))
            sock.send(packet)


def tun_of(host: Namespace) -> str:
    """Return the name of the host's TUN device."""
    found = re.search(r"(qtun\d+):", host.run("ip -o link"))
    assert found is not None, f"{host.name} has no TUN"
    return found[1]
