"""What the offloads of a TUN cost in Python: microseconds a packet, by burst size; no kernel in it.

    python tests/bench/bench_tun_offload.py [--size 1382] [--repeat 300]

For each protocol and family: a super-packet cut into its segments; segments verified and put together; for
comparison the sums of their bytes alone; and for UDP the checksums of as many single packets completed. The
smallest of many rounds is shown, as others run too.
"""

from __future__ import annotations

import argparse
import random
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qtunnel.linux.coalescing import coalesce
from qtunnel.linux.segmentation import Segmenter, complete_checksums
from qtunnel.linux.vnet_hdr import NEEDS_CSUM, VNET_HEADER, Gso, word_sum
from tests.unit.linux.packets import V4, V6, datagrams, stream, tcp_segment, udp_datagram

BURSTS = (1, 2, 3, 4, 8, 16, 46)
TIMESTAMPS = b"\1\1\x08\x0a" + bytes(range(8))
ROUND = 20


def cost(call: Callable[[], object], packets: int, repeat: int) -> float:
    """Return microseconds a packet."""
    return min(timeit.repeat(call, number=ROUND, repeat=repeat)) / ROUND / packets * 1e6


def frames(addresses: tuple[str, str], is_tcp: bool, size: int, count: int) -> tuple[bytes, list[bytes]]:
    """Return a super-packet as the kernel hands it over, and its segments as the other end gets them."""
    l4 = 20 if addresses is V4 else 40
    header = l4 + (32 if is_tcp else 8)
    payload = random.Random(1).randbytes((size - header) * count)
    if is_tcp:
        whole = tcp_segment(payload, addresses, partial_for=32 + len(payload), options=TIMESTAMPS)
        kind = Gso.TCPV4 if addresses is V4 else Gso.TCPV6
        segments = stream(payload, size - header, addresses, options=TIMESTAMPS)
    else:
        whole, kind = udp_datagram(payload, addresses, partial=True), Gso.UDP_L4
        segments = datagrams(payload, size - header, addresses)
    vnet = VNET_HEADER.pack(NEEDS_CSUM, kind, header, size - header, l4, 16 if is_tcp else 6)
    return vnet + whole, segments


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=1382, help="IP packet, bytes (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=300, help="rounds (default %(default)s)")
    arguments = parser.parse_args()
    segmenter = Segmenter()
    print(f"microseconds a packet of {arguments.size} bytes")
    print(f"{'':12}{'packets':>8}{'split':>8}{'coalesce':>10}{'sums':>8}{'complete':>10}")
    for label, addresses, is_tcp in (("TCP, IPv4", V4, True), ("TCP, IPv6", V6, True), ("UDP, IPv4", V4, False)):
        for count in BURSTS:
            whole, segments = frames(addresses, is_tcp, arguments.size, count)
            buffer = memoryview(bytearray(whole))
            split = cost(lambda buffer=buffer: segmenter.split(buffer), count, arguments.repeat)
            together = cost(lambda segments=segments: coalesce(segments, least=2), count, arguments.repeat)
            sums = cost(lambda segments=segments: list(map(word_sum, segments)), count, arguments.repeat)
            complete = cost(lambda segments=segments: complete_checksums(segments, 20, 6), count, arguments.repeat)
            print(f"{label:12}{count:8}{split:8.2f}{together:10.2f}{sums:8.2f}{complete:10.2f}")


if __name__ == "__main__":
    main()
