"""Sends spoofed Initials to 127.0.0.1, each from one of many loopback addresses.

Arguments: port, Initials a second, seconds, seed.
Prints how many it sent and how many Retry packets came back. Each Initial is a valid one of a client that never
answers, so the server has to open it and, once it asks for proof of the address, to answer it.
"""

from __future__ import annotations

import random
import socket
import sys
import time

from aioquic.buffer import Buffer
from aioquic.quic.packet import QuicPacketType, pull_quic_header

from qtunnel.quic.h3 import HttpConnection
from tests.sim.quic_pair import SERVER_ADDRESS, client_settings

SOURCES = 400
INITIALS = 1000


def main(port: int, rate: int, seconds: float, seed: int) -> None:
    """Flood for so long; datagrams that the kernel does not take are sent again."""
    rng = random.Random(seed)
    initials = []
    for number in range(INITIALS):
        client = HttpConnection.client(client_settings(seed=seed + number), SERVER_ADDRESS, 0.0)
        initials.append(client.datagrams_to_send(0.0)[0].data)
    sockets = []
    for _ in range(SOURCES):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        sock.bind((f"127.{rng.randrange(1, 250)}.{rng.randrange(256)}.{rng.randrange(1, 255)}", 0))
        sock.connect(("127.0.0.1", port))
        sockets.append(sock)
    print("ready", flush=True)
    sys.stdin.readline()
    sent = retries = 0
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        for _ in range(min(int(elapsed * rate) - sent, rate // 100)):
            try:
                sockets[sent % SOURCES].send(initials[sent % INITIALS])
            except (BlockingIOError, ConnectionRefusedError):
                break
            sent += 1
        retries += count_retries(sockets[sent % SOURCES])
        time.sleep(0.001)
    print(sent, retries + sum(count_retries(sock) for sock in sockets), flush=True)


def count_retries(sock: socket.socket) -> int:
    """Read all that waits and return how many Retry packets it is."""
    found = 0
    while True:
        try:
            header = pull_quic_header(Buffer(data=sock.recv(2048)), host_cid_length=4)
        except (BlockingIOError, ConnectionRefusedError):
            return found
        found += header.packet_type is QuicPacketType.RETRY


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
