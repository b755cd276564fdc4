"""DF on the wire (experiment E14): never a fragment of ours, whatever the kernel has heard about the path.

The client's link carries 1500; the router's link to the server 1300, and the router says so by ICMP. Each
situation is tried with our sockets and, in the same capture, with those of a careless program: a default one, and
a dual-stack one with only the IPv6 option set. These controls must show the fault, or the test proves nothing.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from qtunnel.burst import SendResult, Transmit
from qtunnel.linux import cmsg
from qtunnel.linux.udp import UdpSocket
from tests.linux.daemons import wait_until
from tests.linux.namespaces import Namespace, Namespaces
from tests.linux.sniffer import UDP, Seen, Sniffer

pytestmark = pytest.mark.root

SERVER4, SERVER6 = "198.18.2.2", "2001:db8:2::2"
PORT = 4433
NARROW = 1300
FITS_LINK = 1400
"""UDP payload that fits the client's link, and does not fit the router's."""
TOO_BIG = 1600


@dataclass
class Path:
    client: Namespace
    router: Namespace
    wire: Sniffer

    def arrived(self) -> list[Seen]:
        """Return the UDP packets, and fragments, that came from the client since the last call."""
        return [
            packet
            for packet in self.wire.packets()
            if not packet.is_outgoing and (packet.protocol == UDP or packet.is_fragment)
        ]

    def ours(self, address: str = "0.0.0.0", port: int = 0) -> UdpSocket:
        with self.client.entered():
            return UdpSocket.open((address, port))

    def default4(self) -> socket.socket:
        with self.client.entered():
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def naive_dual_stack(self) -> socket.socket:
        """Serves IPv4 by mapped addresses, and believes that the IPv6 option is enough."""
        with self.client.entered():
            naive = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            naive.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            naive.setsockopt(socket.IPPROTO_IPV6, cmsg.IPV6_MTU_DISCOVER, cmsg.PMTUDISC_PROBE)
            return naive

    def cached_mtu(self, address: str) -> str:
        return self.client.run(f"ip route get {address}")

    def learn_narrow_path(self, address: str) -> None:
        """Make the client's kernel cache the router's 1300 for this destination, by a real ICMP message."""
        udp = self.ours("0.0.0.0" if "." in address else "::")

        def is_known() -> bool:
            assert udp.send(Transmit(bytes(FITS_LINK), (address, PORT))) is SendResult.SENT
            return f"mtu {NARROW}" in self.cached_mtu(address)

        wait_until(is_known, f"a cached path MTU of {NARROW}")
        udp.close()
        self.arrived()


@pytest.fixture
def path(lab: Namespaces) -> Iterator[Path]:
    client, router, server = lab.add("c"), lab.add("r"), lab.add("s")
    lab.join(client, "eth0", router, "to-c")
    lab.join(router, "to-s", server, "eth0")
    for host, interface, subnet, number in (
        (client, "eth0", 1, 2),
        (router, "to-c", 1, 1),
        (router, "to-s", 2, 1),
        (server, "eth0", 2, 2),
    ):
        host.add_address(interface, f"198.18.{subnet}.{number}/24")
        host.add_address(interface, f"2001:db8:{subnet}::{number}/64")
    for host, subnet in ((client, 1), (server, 2)):
        host.run(f"ip route add default via 198.18.{subnet}.1")
        host.run(f"ip -6 route add default via 2001:db8:{subnet}::1")
    router.sysctl("net/ipv4/ip_forward", "1")
    router.sysctl("net/ipv6/conf/all/forwarding", "1")
    router.run(f"ip route add {SERVER4}/32 dev to-s mtu {NARROW}")
    router.run(f"ip -6 route add {SERVER6}/128 dev to-s mtu {NARROW}")
    # Segments are to be seen one by one, as on a real wire.
    client.run("ethtool -K eth0 tx-udp-segmentation off tx off")
    with Sniffer(router, "to-c") as wire:
        yield Path(client, router, wire)


def assert_whole_with_df(packets: list[Seen], count: int, size: int) -> None:
    assert [packet.size for packet in packets] == [size] * count
    assert not any(packet.is_fragment for packet in packets)
    assert all(packet.dont_fragment for packet in packets)


def assert_fragments_without_df(packets: list[Seen]) -> None:
    assert packets
    assert all(packet.is_fragment for packet in packets)
    assert not any(packet.dont_fragment for packet in packets)


def test_small_packets_carry_df_and_cannot_show_the_fault(path: Path) -> None:
    ours, default, naive = path.ours(), path.default4(), path.naive_dual_stack()
    ours.send(Transmit(bytes(1000), (SERVER4, PORT)))
    assert_whole_with_df(path.arrived(), 1, 1028)
    default.sendto(bytes(1000), (SERVER4, PORT))
    naive.sendto(bytes(1000), (f"::ffff:{SERVER4}", PORT))
    assert_whole_with_df(path.arrived(), 2, 1028)
    for sock in (ours, default, naive):
        sock.close()


def test_a_name_with_both_families_is_served_by_one_native_socket_each(path: Path) -> None:
    path.learn_narrow_path(SERVER4)
    path.learn_narrow_path(SERVER6)
    four, six = path.ours("0.0.0.0", PORT), path.ours("::", PORT)
    assert four.send(Transmit(bytes(FITS_LINK), (SERVER4, PORT))) is SendResult.SENT
    assert six.send(Transmit(bytes(FITS_LINK), (SERVER6, PORT))) is SendResult.SENT
    packets = path.arrived()
    assert_whole_with_df([packet for packet in packets if packet.version == 4], 1, FITS_LINK + 28)
    assert_whole_with_df([packet for packet in packets if packet.version == 6], 1, FITS_LINK + 48)
    assert six.send(Transmit(bytes(100), (f"::ffff:{SERVER4}", PORT))) is not SendResult.SENT
    four.close()
    six.close()
    with path.naive_dual_stack() as naive:
        naive.sendto(bytes(FITS_LINK), (f"::ffff:{SERVER4}", PORT))
        assert_fragments_without_df(path.arrived())


def test_oversize_send_is_too_big_and_puts_nothing_on_the_wire(path: Path) -> None:
    for any_address, address in (("0.0.0.0", SERVER4), ("::", SERVER6)):
        ours = path.ours(any_address)
        assert ours.send(Transmit(bytes(TOO_BIG), (address, PORT))) is SendResult.TOO_BIG
        ours.close()
    assert path.arrived() == []
    with path.default4() as default:
        default.sendto(bytes(TOO_BIG), (SERVER4, PORT))
        assert_fragments_without_df(path.arrived())
    with path.naive_dual_stack() as naive:
        naive.sendto(bytes(TOO_BIG), (f"::ffff:{SERVER4}", PORT))
        assert_fragments_without_df(path.arrived())


def test_qtr_11_cached_path_mtu_is_ignored_and_reported(path: Path) -> None:
    path.learn_narrow_path(SERVER4)
    ours = path.ours()
    for _ in range(4):
        assert ours.send(Transmit(bytes(FITS_LINK), (SERVER4, PORT))) is SendResult.SENT
        assert_whole_with_df(path.arrived(), 1, FITS_LINK + 28)
    errors = ours.read_errors()
    assert errors
    assert {(error.mtu, error.errno, error.type, error.code) for error in errors} == {
        (NARROW, errno.EMSGSIZE, 3, 4)
    }
    assert {(error.remote, error.offender) for error in errors} == {((SERVER4, PORT), "198.18.1.1")}
    ours.close()
    with path.default4() as default:
        default.sendto(bytes(FITS_LINK), (SERVER4, PORT))
        assert_fragments_without_df(path.arrived())


def test_qtr_11_cached_path_mtu_is_ignored_for_ipv6_too(path: Path) -> None:
    path.learn_narrow_path(SERVER6)
    ours = path.ours("::")
    for _ in range(4):
        assert ours.send(Transmit(bytes(FITS_LINK), (SERVER6, PORT))) is SendResult.SENT
        assert_whole_with_df(path.arrived(), 1, FITS_LINK + 48)
    errors = ours.read_errors()
    assert {(error.mtu, error.type, error.code, error.offender) for error in errors} == {
        (NARROW, 2, 0, "2001:db8:1::1")
    }
    ours.close()
    with path.client.entered():
        default = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    default.sendto(bytes(FITS_LINK), (SERVER6, PORT))
    packets = path.arrived()
    assert packets
    assert all(packet.is_fragment for packet in packets)
    default.close()


@pytest.mark.parametrize("narrow_known", [False, True], ids=["fresh", "after a cached PTB"])
def test_qtr_11_segmented_sends_carry_df_on_every_segment(path: Path, narrow_known: bool) -> None:
    if narrow_known:
        path.learn_narrow_path(SERVER4)
    ours = path.ours()
    transmit = Transmit(bytes(FITS_LINK * 5), (SERVER4, PORT), segment_size=FITS_LINK)
    assert ours.send(transmit) is SendResult.SENT
    assert (ours.gso_available, ours.counters.send_calls) == (True, 1)
    assert_whole_with_df(path.arrived(), 5, FITS_LINK + 28)
    ours.close()
    control = NARROW - 28  # a default socket refuses larger segments once it knows the path
    with path.default4() as default:
        default.sendmsg([bytes(control * 5)], [cmsg.segment_size(control)], 0, (SERVER4, PORT))
        packets = path.arrived()
        assert [packet.dont_fragment for packet in packets] == [False] * 5
