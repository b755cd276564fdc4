"""A real TUN device in a namespace of its own."""

from __future__ import annotations

import errno
import select
import socket

import pytest

from qtunnel.errors import SystemSetupError
from qtunnel.linux.tun import Tun
from qtunnel.packet_run import flatten
from tests.linux.namespaces import Namespaces
from tests.unit.linux.packets import udp_datagram

pytestmark = pytest.mark.root


def test_packets_travel_both_ways_and_the_name_pattern_is_filled_in(lab: Namespaces) -> None:
    host = lab.add("h")
    with host.entered():
        tun = Tun.open("qtt%d", 1400)
        try:
            assert tun.name == "qtt0"
            assert "mtu 1400" in host.run("ip link show qtt0")
            host.run("ip address add 198.18.7.1/24 dev qtt0")
            host.run("ip link set qtt0 up")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
                peer.bind(("198.18.7.1", 5555))
                peer.settimeout(30)
                for number in range(3):
                    peer.sendto(b"out %d" % number, ("198.18.7.2", 9))
                assert select.select([tun], [], [], 30)[0]
                packets = [packet for packet in flatten(tun.read_burst()) if packet[0] >> 4 == 4]
                assert [packet[28:] for packet in packets] == [b"out 0", b"out 1", b"out 2"]
                assert tun.read_burst() == []
                assert tun.write_burst([udp_datagram(b"in", ("198.18.7.2", "198.18.7.1"), ports=(9, 5555))]) == 1
                assert peer.recv(100) == b"in"
        finally:
            tun.close()
        assert "qtt0" not in host.run("ip link")


def test_the_kernel_refuses_what_is_no_ip_packet_and_everything_while_down(lab: Namespaces) -> None:
    host = lab.add("h")
    with host.entered():
        tun = Tun.open("qtt%d")
        good = udp_datagram(b"in", ("198.18.7.2", "198.18.7.1"), ports=(9, 5555))
        try:
            assert tun.write_burst([good]) == 0
            assert tun.write_errors == {errno.EIO: 1}
            host.run("ip link set qtt0 up")
            assert tun.write_burst([b"\xff" * 40, good]) == 1
            assert tun.write_errors == {errno.EIO: 1, errno.EINVAL: 1}
            assert not tun.detached
        finally:
            tun.close()


def test_a_taken_name_is_refused_with_the_command_that_shows_who_has_it(lab: Namespaces) -> None:
    host = lab.add("h")
    with host.entered():
        tun = Tun.open("qtt0")
        try:
            with pytest.raises(SystemSetupError, match=r"is taken.*ip -d link show qtt0"):
                Tun.open("qtt0")
            with pytest.raises(SystemSetupError, match="ip -d link show lo"):
                Tun.open("lo")
        finally:
            tun.close()


def test_an_impossible_mtu_leaves_no_interface_behind(lab: Namespaces) -> None:
    host = lab.add("h")
    with host.entered():
        with pytest.raises(SystemSetupError, match="refused an MTU of 12"):
            Tun.open("qtt0", 12)
        assert "qtt0" not in host.run("ip link")


def test_an_interface_deleted_behind_our_back_is_noticed(lab: Namespaces) -> None:
    host = lab.add("h")
    with host.entered():
        tun = Tun.open("qtt0")
        try:
            host.run("ip link set qtt0 up")
            host.run("ip link del qtt0")
            assert tun.read_burst() == []
            assert tun.detached
        finally:
            tun.close()


def test_without_the_capability_the_message_names_it(lab: Namespaces) -> None:
    code = (
        "import ctypes, sys\n"
        "from qtunnel.errors import SystemSetupError\n"
        "from qtunnel.linux.tun import Tun\n"
        "libc = ctypes.CDLL(None)\n"
        "header = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
        "assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0\n"
        "try:\n"
        "    Tun.open('qtt0')\n"
        "except SystemSetupError as error:\n"
        "    print(error)\n"
    )
    assert "Run as root or with CAP_NET_ADMIN" in lab.add("h").python(code)
