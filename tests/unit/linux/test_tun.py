"""Bursts of a TUN device over a socket pair, which keeps packet boundaries as a TUN does; needs no root."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtunnel.burst import MAX_BURST
from qtunnel.errors import SystemSetupError
from qtunnel.linux.tun import Tun, _attach_error, _open_error


@pytest.fixture
def ends() -> Iterator[tuple[Tun, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    tun = Tun(ours.detach(), "fake0")
    try:
        yield tun, theirs
    finally:
        tun.close()
        theirs.close()


def test_read_burst_is_empty_when_nothing_waits(ends: tuple[Tun, socket.socket]) -> None:
    assert ends[0].read_burst() == []
    assert not ends[0].read_errors


def test_read_burst_keeps_packets_apart_and_in_order(ends: tuple[Tun, socket.socket]) -> None:
    tun, other = ends
    packets = [b"one", b"2" * 65535, b"three"]
    for packet in packets:
        other.send(packet)
    assert tun.read_burst() == packets


def test_read_burst_stops_at_max_burst(ends: tuple[Tun, socket.socket]) -> None:
    tun, other = ends
    packets = [b"%d" % number for number in range(MAX_BURST + 5)]
    for packet in packets:
        other.send(packet)
    assert tun.read_burst() == packets[:MAX_BURST]
    assert tun.read_burst() == packets[MAX_BURST:]


def test_write_burst_keeps_the_order_and_counts_what_was_taken(ends: tuple[Tun, socket.socket]) -> None:
    tun, other = ends
    assert tun.write_burst([b"one", b"two"]) == 2
    assert [other.recv(100), other.recv(100)] == [b"one", b"two"]


def test_refused_packets_are_counted_by_errno_and_the_rest_is_still_written(
    ends: tuple[Tun, socket.socket],
) -> None:
    tun, other = ends
    assert tun.write_burst([b"x" * 10_000_000, b"fits"]) == 1
    assert tun.write_errors == {errno.EMSGSIZE: 1}
    assert other.recv(100) == b"fits"


def test_closed_tun_reads_nothing_takes_nothing_and_says_that_it_is_detached(
    ends: tuple[Tun, socket.socket],
) -> None:
    tun, _ = ends
    tun.close()
    tun.close()
    assert tun.fileno() == -1
    assert tun.read_burst() == []
    assert tun.write_burst([b"x"]) == 0
    assert tun.detached


def test_missing_device_says_modprobe_and_mknod(tmp_path: Path) -> None:
    with pytest.raises(SystemSetupError, match=r"modprobe tun.*mknod"):
        Tun.open("qtun%d", device=str(tmp_path / "net" / "tun"))


def test_a_file_that_is_no_tun_device_is_refused_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "tun"
    path.write_bytes(b"")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SystemSetupError, match="cannot make the TUN interface"):
        Tun.open("qtun%d", device=str(path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_each_refusal_says_what_to_do() -> None:
    assert "modprobe tun" in str(_open_error(OSError(errno.ENODEV, "No such device"), "/dev/net/tun"))
    assert "CAP_NET_ADMIN" in str(_open_error(OSError(errno.EACCES, "Permission denied"), "/dev/net/tun"))
    assert "CAP_NET_ADMIN" in str(_attach_error(OSError(errno.EPERM, "Not permitted"), "qtun0"))
    assert "ip -d link show qtun0" in str(_attach_error(OSError(errno.EBUSY, "busy"), "qtun0"))
