"""What the outer IP header of a real tunnel says, whatever the inner one does."""

from __future__ import annotations

import asyncio
import secrets
import socket
import tempfile
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pytest

import qtunnel
from tests.sim.packets import checksum, number_of, packet4

pytestmark = pytest.mark.root

POOL = IPv4Interface("10.98.0.1/24")
BEYOND = IPv4Address("198.18.0.1")
EXPEDITED_CE = 46 << 2 | 0b11
COUNT = 20


def with_traffic_class(packet: bytes, value: int) -> bytes:
    header = bytearray(packet[:20])
    header[1] = value
    header[10:12] = b"\0\0"
    header[10:12] = checksum(bytes(header)).to_bytes(2)
    return bytes(header) + packet[20:]


def outer_headers(capture: socket.socket, port: int) -> list[bytes]:
    """Return the IPv4 headers of captured UDP packets from or to a port, and of fragments of any."""
    headers = []
    while True:
        try:
            data, address = capture.recvfrom(65536)
        except BlockingIOError:
            return headers
        is_arriving = address[2] != socket.PACKET_OUTGOING  # on this interface each packet does both
        if is_arriving and data[9] == socket.IPPROTO_UDP and port.to_bytes(2) in (data[20:22], data[22:24]):
            headers.append(data[:20])


async def test_cip_84_cip_85_qtr_11_outer_packets_have_df_no_dscp_and_no_ecn_and_inner_ones_keep_theirs() -> None:
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as state:
        identity = qtunnel.make_identity(Path(state), server_name="header.qtunnel.invalid")
    quic = qtunnel.QuicConfig(path_mtu=1500, gso=False)  # each datagram is to be seen by itself
    config = qtunnel.ServerConfig(
        listen=("127.0.0.1",), port=0, pool4=POOL, advertise=(IPv4Network("0.0.0.0/0"),), quic=quic
    )
    users = [qtunnel.User(name="alice", token_sha256=qtunnel.token_digest(token))]
    async with qtunnel.serve(config, identity=identity, users=users) as server:
        client = qtunnel.ClientConfig(
            server="127.0.0.1",
            port=server.port,
            server_name="header.qtunnel.invalid",
            fingerprint=identity.fingerprint,
            token=token,
            want_ipv6=False,
            quic=quic,
        )
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(0x0800)) as lo:
            lo.bind(("lo", 0x0800))
            async with qtunnel.connect(client) as tunnel:
                address = next(each.ip for each in tunnel.addresses)
                assert isinstance(address, IPv4Address)
                sent = [
                    with_traffic_class(packet4(address, BEYOND, number, size=tunnel.inner_mtu), EXPEDITED_CE)
                    for number in range(COUNT)
                ]
                arrived: list[bytes] = []
                tunnel.send(sent)
                async with asyncio.timeout(30):
                    while len(arrived) < COUNT:
                        arrived += await server.receive()
            headers = outer_headers(lo, server.port)
    assert arrived == sent
    assert [number_of(packet) for packet in arrived] == list(range(COUNT))
    sizes = [int.from_bytes(header[2:4]) for header in headers]
    assert sizes.count(1500) >= COUNT
    assert max(sizes) == 1500
    assert {header[1] for header in headers} == {0}
    dont_fragment = 0x4000
    assert {int.from_bytes(header[6:8]) for header in headers} == {dont_fragment}
