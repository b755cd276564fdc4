"""The offloads of a TUN against a real kernel: what we cut and join is what it cuts and joins, to the byte."""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Iterator, Sequence

import pytest

from qtunnel.linux.coalescing import coalesce
from qtunnel.linux.tun import Tun
from qtunnel.linux.vnet_hdr import GSO_ECN, MAX_SEGMENTS, NEEDS_CSUM, VNET_HEADER, Gso
from qtunnel.packet_run import flatten
from tests.linux.namespaces import Namespace, Namespaces
from tests.unit.linux.packets import (
    ACK,
    CWR,
    FIN,
    PSH,
    checksum,
    datagrams,
    is_valid,
    stream,
    tcp_segment,
    udp_datagram,
)

pytestmark = pytest.mark.root

V4 = ("198.18.1.2", "198.18.9.2")
V6 = ("2001:db8:1::2", "2001:db8:9::2")
families = pytest.mark.parametrize("addresses", [V4, V6], ids=["IPv4", "IPv6"])


# The kernel as a router: a super-packet written to one TUN leaves by another, which takes it whole, or by a third,
# for which the kernel has to cut it.


class Router:
    """A namespace that forwards from the TUN `inside` to `whole`, with offloads, or `cut`, without."""

    def __init__(self, host: Namespace) -> None:
        self.host = host
        for family in ("ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"):
            host.sysctl(f"net/{family}", "1")
        with host.entered():
            self.inside = Tun.open("inside")
            self.whole = Tun.open("whole")
            self.cut = Tun.open("cut", offload=False)
        for number, tun in enumerate((self.inside, self.whole, self.cut), 1):
            host.sysctl(f"net/ipv6/conf/{tun.name}/router_solicitations", "0")
            host.add_address(tun.name, f"198.18.{number}.1/24")
            host.add_address(tun.name, f"2001:db8:{number}::1/64")
            host.run(f"ip link set {tun.name} up")

    def close(self) -> None:
        for tun in (self.inside, self.whole, self.cut):
            tun.close()

    def forwarded(self, frames: Sequence[bytes], by: Tun, protocol: int, expected: int) -> list[bytes]:
        """Write frames to `inside` and return what came out of another TUN, without what the host says itself.

        Waits for that many packets, and a moment for more.
        """
        self.host.run(f"ip route replace 198.18.9.0/24 dev {by.name}")
        self.host.run(f"ip -6 route replace 2001:db8:9::/64 dev {by.name}")
        by.read_burst()
        for frame in frames:
            assert os.write(self.inside.fileno(), frame) == len(frame)
        found: list[bytes] = []
        while by.has_more or select.select([by], [], [], 30.0 if len(found) < expected else 0.02)[0]:
            packets = flatten(by.read_burst())
            found += [each for each in packets if (each[9] if each[0] >> 4 == 4 else each[6]) == protocol]
        return found


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    with Namespaces() as lab:
        router = Router(lab.add("r"))
        try:
            yield router
        finally:
            router.close()


def one_hop_on(packet: bytes) -> bytes:
    """Return a packet as a router sends it on."""
    if packet[0] >> 4 == 6:
        return packet[:7] + bytes([packet[7] - 1]) + packet[8:]
    header = packet[:8] + bytes([packet[8] - 1]) + packet[9:10] + b"\0\0" + packet[12:20]
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + packet[20:]


def frames_of(packets: Sequence[bytes]) -> list[bytes]:
    """Return what write_burst writes: super-packets, and complete packets alone."""
    frames: list[bytes] = []
    done = 0
    for together in coalesce(packets, least=2):
        frames += [bytes(10) + packet for packet in packets[done : together.first]]
        frames.append(b"".join(together.pieces))
        done = together.first + together.count
    return frames + [bytes(10) + packet for packet in packets[done:]]


@families
@pytest.mark.parametrize("size", [7, 100, 1330, 1331])
@pytest.mark.parametrize("missing", [0, 1, 6])
def test_what_we_join_the_kernel_cuts_into_the_same_packets(
    router: Router, addresses: tuple[str, str], size: int, missing: int
) -> None:
    payload = os.urandom(size * 40 - missing)
    options = b"\1\1\x08\x0a" + os.urandom(8)
    for sequence, flags in ((1000, ACK), (2**32 - 10 * size, ACK | PSH)):
        packets = stream(
            payload, size, addresses, sequence=sequence, last_flags=flags, options=options, identification=65520
        )
        frames = frames_of(packets)
        assert len(frames) < 6
        assert router.forwarded(frames, router.cut, 6, len(packets)) == list(map(one_hop_on, packets))
    packets = datagrams(payload, size, addresses)
    frames = frames_of(packets)
    assert len(frames) == 1
    assert router.forwarded(frames, router.cut, 17, len(packets)) == list(map(one_hop_on, packets))


def tcp_frame(payload: bytes, size: int, addresses: tuple[str, str], flags: int, **fields: int | bytes) -> bytes:
    kind = Gso.TCPV4 if addresses is V4 else Gso.TCPV6
    ecn = GSO_ECN if flags & CWR else 0
    length = 20 + len(payload)
    packet = tcp_segment(payload, addresses, flags=flags, partial_for=length, **fields)  # type: ignore[arg-type]
    l4 = 20 if addresses is V4 else 40
    return VNET_HEADER.pack(NEEDS_CSUM, kind | ecn, l4 + 20, size, l4, 16) + packet


def udp_frame(payload: bytes, size: int, addresses: tuple[str, str], **fields: int | bytes) -> bytes:
    packet = udp_datagram(payload, addresses, partial=True, **fields)
    l4 = 20 if addresses is V4 else 40
    return VNET_HEADER.pack(NEEDS_CSUM, Gso.UDP_L4, l4 + 8, size, l4, 6) + packet


@families
@pytest.mark.parametrize("flags", [ACK, ACK | PSH, ACK | PSH | FIN, ACK | CWR, ACK | CWR | PSH])
@pytest.mark.parametrize("count", [2, 3, 4, 19, 20, 45, 64])
def test_what_the_kernel_hands_over_whole_we_cut_as_it_does(
    router: Router, addresses: tuple[str, str], flags: int, count: int
) -> None:
    """One super-packet in: by `cut` the kernel's own segments come out, by `whole` ours."""
    size, length = (1000, 1000 * count - 999) if count < 60 else (1001, 1001 * count - 3)
    payload = os.urandom(length)
    frame = tcp_frame(payload, size, addresses, flags, sequence=2**32 - 1500, identification=65530)
    before = router.whole.counters.super_packets_read
    kernels = router.forwarded([frame], router.cut, 6, count)
    ours = router.forwarded([frame], router.whole, 6, count)
    assert len(kernels) == count
    assert ours == kernels
    assert router.whole.counters.super_packets_read == before + 1
    assert all(map(is_valid, ours))


@families
@pytest.mark.parametrize("count", [2, 4, 19, 20, 45, 64])
@pytest.mark.parametrize("fragment", [0, 0x4000])
def test_udp_super_packets_are_cut_as_the_kernel_does(
    router: Router, addresses: tuple[str, str], count: int, fragment: int
) -> None:
    payload = os.urandom(900 * count - 17)
    frame = udp_frame(payload, 900, addresses, identification=65530, fragment=fragment)
    before = router.whole.counters.super_packets_read
    kernels = router.forwarded([frame], router.cut, 17, count)
    assert len(kernels) == count
    assert router.forwarded([frame], router.whole, 17, count) == kernels
    assert router.whole.counters.super_packets_read == before + 1


@families
def test_checksums_left_to_the_device_are_completed_as_the_kernel_does(
    router: Router, addresses: tuple[str, str]
) -> None:
    """Of 70,000 sums one would be zero; here every third is."""
    l4 = 20 if addresses is V4 else 40
    frames = []
    for number in range(30):
        payload = os.urandom(98) + bytes(2)
        if number % 3 == 0:
            check = udp_datagram(payload, addresses)[l4 + 6 : l4 + 8]
            payload = payload[:98] + check
        packet = udp_datagram(payload, addresses, partial=True)
        frames.append(VNET_HEADER.pack(NEEDS_CSUM, 0, 0, 0, l4, 6) + packet)
    kernels = router.forwarded(frames, router.cut, 17, 30)
    assert len(kernels) == 30
    assert sum(packet[l4 + 6 : l4 + 8] == b"\xff\xff" for packet in kernels) >= 10
    assert router.forwarded(frames, router.whole, 17, 30) == kernels


def test_hosts_are_asked_for_no_more_segments_than_one_send_carries(router: Router) -> None:
    assert f"gso_max_segs {MAX_SEGMENTS} " in router.host.run("ip -d link show whole")
    assert f"gso_max_segs {MAX_SEGMENTS} " not in router.host.run("ip -d link show cut")


@families
def test_a_super_packet_of_more_segments_is_cut_as_well(router: Router, addresses: tuple[str, str]) -> None:
    """A guest's, for one, whose segments the kernel has not counted."""
    frame = tcp_frame(os.urandom(100 * 300), 100, addresses, ACK)
    kernels = router.forwarded([frame], router.cut, 6, 300)
    assert len(kernels) == 300
    assert router.forwarded([frame], router.whole, 6, 300) == kernels


@families
def test_a_corrupt_packet_is_still_corrupt_behind_the_tun(router: Router, addresses: tuple[str, str]) -> None:
    packets = stream(os.urandom(10_000), 1000, addresses)
    packets[4] = packets[4][:-1] + bytes([packets[4][-1] ^ 1])
    frames = frames_of(packets)
    assert [len(frame) > 2000 for frame in frames] == [True, False, True]
    forwarded = router.forwarded(frames, router.cut, 6, 10)
    assert [is_valid(packet) for packet in forwarded] == [index != 4 for index in range(10)]
