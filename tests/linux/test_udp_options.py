"""What can and cannot be had when a UDP socket is opened, on a real kernel."""

from __future__ import annotations

import socket

import pytest

from qtunnel.errors import SystemSetupError
from qtunnel.linux import cmsg
from qtunnel.linux.udp import UdpSocket
from tests.linux.namespaces import Namespaces

pytestmark = pytest.mark.root


def option(udp: UdpSocket, level: int, name: int) -> int:
    value: int = udp._socket.getsockopt(level, name)
    return value


def test_ipv4_sockets_are_native_and_set_df(lab: Namespaces) -> None:
    with lab.add("h").entered():
        udp = UdpSocket.open(("0.0.0.0", 0))
    assert udp._socket.family == socket.AF_INET
    assert option(udp, socket.IPPROTO_IP, cmsg.IP_MTU_DISCOVER) == cmsg.PMTUDISC_PROBE
    assert option(udp, socket.IPPROTO_IP, cmsg.IP_RECVERR) == 1
    udp.close()


def test_ipv6_sockets_serve_ipv6_alone_so_that_both_can_have_one_port(lab: Namespaces) -> None:
    with lab.add("h").entered():
        six = UdpSocket.open(("::", 4433))
        four = UdpSocket.open(("0.0.0.0", 4433))
    assert option(six, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    assert option(six, socket.IPPROTO_IPV6, cmsg.IPV6_MTU_DISCOVER) == cmsg.PMTUDISC_PROBE
    six.close()
    four.close()


def test_buffers_beyond_the_limit_of_the_host_are_had_by_force(lab: Namespaces) -> None:
    with lab.add("h").entered():
        udp = UdpSocket.open(("0.0.0.0", 0), receive_buffer=64 << 20, send_buffer=64 << 20)
    assert (udp.receive_buffer, udp.send_buffer) == (64 << 20, 64 << 20)
    udp.close()


def test_a_receive_buffer_can_be_left_as_the_kernel_makes_it(lab: Namespaces) -> None:
    with lab.add("h").entered():
        plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp = UdpSocket.open(("0.0.0.0", 0), receive_buffer=None)
        usual = UdpSocket.open(("0.0.0.0", 0))
    assert udp.receive_buffer == plain.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    assert udp.receive_buffer < usual.receive_buffer
    usual.close()
    plain.close()
    udp.close()


def test_without_the_right_to_force_the_sysctl_and_its_value_are_named(lab: Namespaces) -> None:
    code = (
        "import ctypes, logging, sys\n"
        "from qtunnel.linux.udp import UdpSocket\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "libc = ctypes.CDLL(None)\n"
        "header = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
        "assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0\n"
        "udp = UdpSocket.open(('127.0.0.1', 0), receive_buffer=1 << 30, send_buffer=1 << 30)\n"
        "assert udp.receive_buffer < 1 << 30\n"
        "udp.close()\n"
    )
    output = lab.add("h").python(code)
    assert "Type: sysctl -w net.core.rmem_max=1073741824" in output
    assert "Type: sysctl -w net.core.wmem_max=1073741824" in output


def test_taken_port_names_the_command_that_shows_who_has_it(lab: Namespaces) -> None:
    with lab.add("h").entered():
        first = UdpSocket.open(("0.0.0.0", 4433))
        with pytest.raises(SystemSetupError, match=r"4433 is taken.*ss -ulpn"):
            UdpSocket.open(("0.0.0.0", 4433))
    first.close()


def test_missing_interface_and_foreign_address_are_named(lab: Namespaces) -> None:
    with lab.add("h").entered():
        with pytest.raises(SystemSetupError, match="no interface eth7"):
            UdpSocket.open(("0.0.0.0", 0), interface="eth7")
        with pytest.raises(SystemSetupError, match=r"192\.0\.2\.1 is no address of this host"):
            UdpSocket.open(("192.0.2.1", 0))
        with pytest.raises(SystemSetupError, match="no interface eth7"):
            UdpSocket.open(("fe80::1%eth7", 0))


@pytest.mark.parametrize("host", ["localhost", "::ffff:198.18.0.1", "", "300.0.0.1"])
def test_names_and_mapped_addresses_are_refused(lab: Namespaces, host: str) -> None:
    with lab.add("h").entered(), pytest.raises(SystemSetupError):
        UdpSocket.open((host, 0))


def test_impossible_port_is_refused(lab: Namespaces) -> None:
    with lab.add("h").entered(), pytest.raises(SystemSetupError, match="70000 is not a UDP port"):
        UdpSocket.open(("127.0.0.1", 70000))


def test_mark_is_set(lab: Namespaces) -> None:
    with lab.add("h").entered():
        udp = UdpSocket.open(("0.0.0.0", 0), mark=77)
    assert option(udp, socket.SOL_SOCKET, cmsg.SO_MARK) == 77
    udp.close()
