"""What one inner packet costs on its way through both ends: microseconds by stage, without veth and router.

    python tests/bench/bench_datapath.py [--segments 44] [--together 3] [--bursts 2000]

A client and a server are joined by two UDP sockets on loopback; their TUN devices are socket pairs that hand over
and take frames as a TUN with virtio_net_hdr does. The client's reads super-packets of one TCP flow, the server's
takes them, and its ACKs go back. `aead` is the floor: sealing as many packets with nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from qtunnel.burst import Address, Burst, Received, SendResult, Transmit
from qtunnel.linux.tun import Tun
from qtunnel.linux.udp import UdpSocket
from qtunnel.linux.vnet_hdr import NEEDS_CSUM, VNET_HEADER, VNET_HEADER_SIZE, Gso
from qtunnel.state.identity import make_identity
from tests.sim.world import POOL4, SERVER_NAME, World, address4, client_of, server_of
from tests.unit.linux.packets import tcp_segment

TIMESTAMPS = b"\1\1\x08\x0a" + bytes(range(8))
HEADERS = 52
"""Of IPv4 and of TCP with timestamps."""
WARM_UP = 200


def tun_pair() -> tuple[Tun, socket.socket]:
    """Return a Tun and the socket that stands for the kernel behind it."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (near, far):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        end.setblocking(False)
    return Tun(near.detach(), "bench", has_vnet_header=True), far


def super_packet(source: str, destination: str, size: int, segments: int, sequence: int) -> bytes:
    """Return a TCP super-packet as the kernel hands it over: segments of IP packets of size bytes."""
    payload = os.urandom((size - HEADERS) * segments)
    whole = tcp_segment(
        payload, (source, destination), partial_for=32 + len(payload), options=TIMESTAMPS, sequence=sequence
    )
    return VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV4, HEADERS, size - HEADERS, 20, 16) + whole


class Stages:
    """Time by stage."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, list[int]] = defaultdict(list)
        self._name = ""
        self._since = 0

    def enter(self, name: str) -> None:
        now = time.perf_counter_ns()
        if self._name:
            self.spent[self._name].append(now - self._since)
        self._name, self._since = name, time.perf_counter_ns()

    def leave(self) -> None:
        self.enter("")


def aead_floor(size: int) -> float:
    """Return nanoseconds to seal one packet, and nothing else."""
    aead, out, data = AESGCM(bytes(16)), bytearray(size + 16), bytes(size)
    best = []
    for _ in range(200):
        start = time.perf_counter_ns()
        for _ in range(50):
            aead.encrypt_into(bytes(12), data, b"1234567", out)
        best.append((time.perf_counter_ns() - start) / 50)
    return median(best)


class Bench:
    """A connected client and server, their datagrams over loopback sockets and their packets over socket pairs."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as state:
            self.world = World(seed=1, identity=make_identity(Path(state), server_name=SERVER_NAME))
        host = self.world.add_client(settings={"congestion_control": "none"})
        self.world.wait_up(host)
        self.world.network.run_for(2)
        self.client, self.server = client_of(host), server_of(self.world)
        self.addresses = str(address4(host)), str(POOL4.ip)
        self.client_udp, self.server_udp = (UdpSocket.open(("127.0.0.1", 0)) for _ in range(2))
        self.client_tun, self.client_kernel = tun_pair()
        self.server_tun, self.server_kernel = tun_pair()
        self.client_remote, self.server_remote = host.addresses[0], self.world.server.addresses[0]
        self.stages = Stages()
        self.bytes_arrived = 0
        self._offset = self.world.now - time.monotonic()
        self._sink = bytearray(70000)

    @property
    def now(self) -> float:
        return time.monotonic() + self._offset

    def send_burst(self, frames: Sequence[bytes]) -> None:
        """Bring super-packets from the client's TUN to the server's."""
        for frame in frames:
            self.client_kernel.send(frame)
        stages, client = self.stages, self.client
        stages.enter("client tun read")
        groups = self.client_tun.read_burst()
        stages.enter("client forward, queue")
        for group in groups:
            client.receive_from_tun(Burst(group, self.now))
        while True:
            stages.enter("client seal")
            transmits = client.datagrams_to_send(self.now)
            stages.enter("client timer")
            due = client.get_timer()
            stages.enter("client udp send")
            send(self.client_udp, self.server_udp, transmits)
            self._serve()
            stages.leave()
            self._drain()
            if not client._connection.quic._packets.packets:
                return
            if due is not None:
                time.sleep(max(0.0, due - self.now))
                client.handle_timer(self.now)

    def _serve(self) -> None:
        """Let the server take what came, and the client its ACKs."""
        stages, server = self.stages, self.server
        stages.enter("server udp receive")
        received = receive(self.server_udp, self.client_remote, str(self.server_remote[0]))
        stages.enter("server open, forward")
        if received:
            server.receive_from_udp(received, self.now)
        stages.enter("server tun write")
        for group in server.packets_to_write():
            self.server_tun.write_burst(group)
        stages.enter("server ack")
        answers = server.datagrams_to_send(self.now)
        server.get_timer()
        send(self.server_udp, self.client_udp, answers)
        stages.enter("client ack")
        received = receive(self.client_udp, self.server_remote, str(self.client_remote[0]))
        if received:
            self.client.receive_from_udp(received, self.now)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.bytes_arrived += self.server_kernel.recv_into(self._sink) - VNET_HEADER_SIZE - HEADERS


def send(udp: UdpSocket, to: UdpSocket, transmits: Sequence[Transmit]) -> None:
    for transmit in transmits:
        assert udp.send(replace(transmit, remote=to.local_address, local=None)) is SendResult.SENT


def receive(udp: UdpSocket, remote: Address, local: str) -> list[Received]:
    return [replace(each, remote=remote, local=local) for each in udp.receive()]


def run(segments: int, bursts: int, together: int = 1) -> dict[str, float]:
    """Return microseconds a packet by stage, the median burst of each."""
    bench = Bench()
    size = bench.client.inner_mtu
    frames = [super_packet(*bench.addresses, size, segments, 1000 + number * 999) for number in range(8)]
    for index in range(WARM_UP + bursts):
        if index == WARM_UP:
            bench.stages.spent.clear()
            bench.bytes_arrived = 0
            gc.collect()
            gc.freeze()
        bench.send_burst([frames[(index * together + number) % len(frames)] for number in range(together)])
    packets = bursts * segments * together
    expected = bursts * together * (len(frames[0]) - VNET_HEADER_SIZE - HEADERS)
    assert bench.bytes_arrived == expected, (bench.bytes_arrived, expected)
    result = {name: sum(spent) / packets / 1000 for name, spent in bench.stages.spent.items()}
    result["aead"] = aead_floor(size) / 1000
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--segments", type=int, default=44, help="packets in a super-packet (default %(default)s)")
    parser.add_argument("--bursts", type=int, default=2000, help="super-packets sent (default %(default)s)")
    parser.add_argument("--together", type=int, default=3, help="read in one wake-up (default %(default)s)")
    arguments = parser.parse_args()
    result = run(arguments.segments, arguments.bursts, arguments.together)
    for name, spent in result.items():
        print(f"{name:24}{spent:8.2f} us a packet")
    for side in ("client", "server"):
        total = sum(spent for name, spent in result.items() if name.startswith(side))
        print(f"{side + ' in all':24}{total:8.2f}")


if __name__ == "__main__":
    main()
