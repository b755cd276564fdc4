"""Two hosts, a TUN in each, and a forwarder between them in place of a tunnel; transfers compare both ends."""

from __future__ import annotations

import select
import shlex
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from qtunnel.linux.tun import Tun
from qtunnel.packet_run import flatten
from tests.linux.namespaces import Namespaces

RECEIVE = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 5300), family=family) as listening:
    print("listening", flush=True)
    connection, _ = listening.accept()
    digest, size = hashlib.md5(), 0
    while data := connection.recv(1 << 20):
        digest.update(data)
        size += len(data)
    print(size, digest.hexdigest(), flush=True)
"""
SEND = """
import hashlib, os, random, socket, sys
size, largest = int(sys.argv[2]), int(sys.argv[3])
content = os.urandom(size)
chance = random.Random(1)
with socket.create_connection((sys.argv[1], 5300), timeout=30) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start = 0
    while start < size:
        end = start + chance.randint(1, largest)
        connection.sendall(content[start:end])
        start = end
print(size, hashlib.md5(content).hexdigest())
"""
RECEIVE_UDP = """
import hashlib, select, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
SO_RCVBUFFORCE, SOL_UDP, UDP_GRO = 33, 17, 104
with socket.socket(family, socket.SOCK_DGRAM) as receiving:
    receiving.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
    receiving.setsockopt(SOL_UDP, UDP_GRO, int(sys.argv[2]))
    receiving.bind((sys.argv[1], 5300))
    receiving.settimeout(30)
    print("listening", flush=True)
    digest, size, sizes = hashlib.md5(), 0, set()
    while True:
        data, sender = receiving.recvfrom(1 << 17)
        if data == b"end":
            break
        digest.update(data)
        size += len(data)
        sizes.add(len(data))
        if not select.select([receiving], [], [], 0)[0]:
            receiving.sendto(b"%d" % size, sender)
    print(size, digest.hexdigest(), max(sizes), flush=True)
"""
SEND_UDP = """
import hashlib, os, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
SOL_UDP, UDP_SEGMENT = 17, 103
size, per_send = int(sys.argv[2]), int(sys.argv[3])
digest, total = hashlib.md5(), 0
with socket.socket(family, socket.SOCK_DGRAM) as sending:
    sending.setsockopt(SOL_UDP, UDP_SEGMENT, size)
    sending.connect((sys.argv[1], 5300))
    sending.settimeout(30)
    for number in range(200):
        content = os.urandom(size * per_send - (number % 3) * 7)
        sending.send(content)
        digest.update(content)
        total += len(content)
        while int(sending.recv(20)) < total:
            pass
    sending.send(b"end")
print(total, digest.hexdigest())
"""


def is_right(packet: bytes) -> bool:
    """Return whether the checksums of a TCP or UDP packet are right; faster than tests.unit.linux.packets."""
    if packet[0] >> 4 == 4:
        addresses, protocol, l4 = packet[12:20], packet[9], (packet[0] & 15) * 4
        if int.from_bytes(packet[:l4]) % 0xFFFF:
            return False
    else:
        addresses, protocol, l4 = packet[8:40], packet[6], 40
    if protocol not in (6, 17):
        return True
    data = addresses + struct.pack("!HH", protocol, len(packet) - l4) + packet[l4:]
    return not int.from_bytes(data + b"\0" * (len(data) & 1)) % 0xFFFF


class Forwarder:
    """Carries bursts between two TUNs in a thread, and looks at the checksum of every packet."""

    def __init__(self, left: Tun, right: Tun) -> None:
        self.wrong = 0
        self.refused = 0
        self.longest_burst = 0
        self._peers = {left: right, right: left}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Forwarder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for tun in select.select(list(self._peers), [], [], 0.1)[0]:
                self._pass_on(tun)
                while tun.has_more:
                    self._pass_on(tun)

    def _pass_on(self, tun: Tun) -> None:
        packets = flatten(tun.read_burst())
        self.longest_burst = max(self.longest_burst, len(packets))
        self.wrong += sum(not is_right(packet) for packet in packets)
        self.refused += len(packets) - self._peers[tun].write_burst(packets)


class Pair:
    """Two namespaces, a TUN in each."""

    def __init__(self, lab: Namespaces, *, offload: bool) -> None:
        self.hosts = (lab.add("a"), lab.add("b"))
        self.tuns: list[Tun] = []
        for number, host in enumerate(self.hosts, 1):
            with host.entered():
                tun = Tun.open("tun", 1382, offload=offload)
            self.tuns.append(tun)
            host.sysctl("net/ipv6/conf/tun/router_solicitations", "0")
            host.add_address("tun", f"198.18.0.{number}/24")
            host.add_address("tun", f"2001:db8::{number}/64")
            host.run("ip link set tun up")

    def address(self, number: int, version: int) -> str:
        return f"198.18.0.{number + 1}" if version == 4 else f"2001:db8::{number + 1}"

    def transfer(self, sender: int, version: int, size: int, largest_write: int) -> None:
        """Send by TCP from one host to the other and compare the digests of both ends."""
        receiver = 1 - sender
        address = self.address(receiver, version)
        self._compare(receiver, RECEIVE, [address], sender, SEND, [address, str(size), str(largest_write)])

    def send_datagrams(self, version: int, size: int, per_send: int, *, gro: bool) -> int:
        """Send segmented sends of UDP, each once the one before has arrived; return the most one receive gave."""
        address = self.address(1, version)
        return int(
            self._compare(
                1, RECEIVE_UDP, [address, str(int(gro))], 0, SEND_UDP, [address, str(size), str(per_send)]
            )[0]
        )

    def _compare(
        self, receiver: int, receive: str, where: list[str], sender: int, send: str, what: list[str]
    ) -> list[str]:
        receiving = self.hosts[receiver].spawn(shlex.join([sys.executable, "-c", receive, *where]))
        try:
            assert receiving.stdout is not None
            assert receiving.stdout.readline() == "listening\n"
            sent = self.hosts[sender].python(send, *what, timeout=120).split()
            output, _ = receiving.communicate(timeout=60)
        finally:
            receiving.kill()
            receiving.communicate()
        received = output.split()
        assert received[:2] == sent
        return received[2:]


@contextmanager
def pair(*, offload: bool = True) -> Iterator[tuple[Pair, Forwarder]]:
    with Namespaces() as lab:
        made = Pair(lab, offload=offload)
        try:
            with Forwarder(*made.tuns) as forwarder:
                yield made, forwarder
        finally:
            for tun in made.tuns:
                tun.close()
