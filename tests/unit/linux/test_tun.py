"""Bursts of a TUN device over a socket pair, which keeps packet boundaries as a TUN does; needs no root."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtunnel.burst import MAX_BURST, MAX_READ
from qtunnel.errors import SystemSetupError
from qtunnel.linux import tun as tun_module
from qtunnel.linux.tun import Tun, TunCounters, _attach_error, _open_error
from qtunnel.linux.vnet_hdr import NEEDS_CSUM, VNET_HEADER, Gso
from qtunnel.packet_run import PacketRun, flatten
from tests.unit.linux.packets import datagrams, stream, tcp_segment, udp_datagram


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
    assert flatten(tun.read_burst()) == packets


def test_read_burst_stops_at_max_burst(ends: tuple[Tun, socket.socket]) -> None:
    tun, other = ends
    packets = [b"%d" % number for number in range(MAX_BURST + 5)]
    for packet in packets:
        other.send(packet)
    assert flatten(tun.read_burst()) == packets[:MAX_BURST]
    assert flatten(tun.read_burst()) == packets[MAX_BURST:]


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


@pytest.fixture
def framed() -> Iterator[tuple[Tun, socket.socket]]:
    """A TUN with IFF_VNET_HDR: what passes is a virtio_net_hdr and a packet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    tun = Tun(ours.detach(), "fake0", has_vnet_header=True)
    try:
        yield tun, theirs
    finally:
        tun.close()
        theirs.close()


def super_packet(payload: bytes, size: int) -> bytes:
    packet = tcp_segment(payload, partial_for=20 + len(payload))
    return VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV4, 40, size, 20, 16) + packet


def received(other: socket.socket) -> list[bytes]:
    frames = []
    try:
        while True:
            frames.append(other.recv(1 << 17))
    except BlockingIOError:
        return frames


def test_super_packets_and_single_ones_are_read_as_packets_in_their_order(
    framed: tuple[Tun, socket.socket],
) -> None:
    tun, other = framed
    payload = bytes(range(200)) * 50
    expected = []
    for number in range(3):
        incomplete = udp_datagram(payload[:100], identification=number, partial=True)
        other.send(VNET_HEADER.pack(NEEDS_CSUM, 0, 0, 0, 20, 6) + incomplete)
        other.send(bytes(10) + b"single %d" % number)
        other.send(super_packet(payload, 1000))
        expected += [udp_datagram(payload[:100], identification=number), b"single %d" % number]
        expected += stream(payload, 1000)
    assert flatten(tun.read_burst()) == expected
    assert tun.counters == TunCounters(super_packets_read=3, segments_read=30)
    assert tun.read_burst() == []


def test_a_burst_ends_with_the_super_packet_that_fills_it(framed: tuple[Tun, socket.socket]) -> None:
    tun, other = framed
    for _ in range(4):
        other.send(super_packet(bytes(46 * 100), 100))
    assert len(flatten(tun.read_burst())) == 3 * 46
    assert len(flatten(tun.read_burst())) == 46


def test_a_burst_is_full_with_packets_of_either_kind(framed: tuple[Tun, socket.socket]) -> None:
    """A super-packet after it would make it longer than whoever takes it has room for."""
    tun, other = framed
    half, run = MAX_BURST // 2, MAX_READ - MAX_BURST + 1
    for size in (half, half - 2):
        other.send(super_packet(bytes(size * 100), 100))
    for _ in range(2):
        other.send(bytes(10) + b"single")
    other.send(super_packet(bytes(run * 100), 100))
    assert len(flatten(tun.read_burst())) == MAX_BURST
    assert len(flatten(tun.read_burst())) == run
    for _ in range(MAX_BURST - 1):
        other.send(bytes(10) + b"single")
    other.send(super_packet(bytes(run * 100), 100))
    assert len(flatten(tun.read_burst())) == MAX_READ


def test_a_super_packet_stays_a_run_and_single_packets_around_it_lists(framed: tuple[Tun, socket.socket]) -> None:
    tun, other = framed
    other.send(bytes(10) + b"before")
    other.send(super_packet(bytes(2000), 100))
    other.send(bytes(10) + b"after")
    before, run, after = tun.read_burst()
    assert (before, after) == ([b"before"], [b"after"])
    assert isinstance(run, PacketRun)
    assert run == stream(bytes(2000), 100)


def test_a_burst_has_no_more_than_four_super_packets(framed: tuple[Tun, socket.socket]) -> None:
    tun, other = framed
    for _ in range(6):
        other.send(super_packet(bytes(300), 100))
    assert len(flatten(tun.read_burst())) == 12
    assert len(flatten(tun.read_burst())) == 6


@pytest.mark.parametrize("before", [0, 1, MAX_BURST - 1])
def test_a_super_packet_of_any_number_of_segments_is_given_out_by_and_by(
    framed: tuple[Tun, socket.socket], before: int
) -> None:
    """Where gso_max_segs could not be set, or a guest's kernel has not counted the segments."""
    tun, other = framed
    payload = os.urandom(300 * 100)
    for _ in range(before):
        other.send(bytes(10) + b"single")
    other.send(super_packet(payload, 100))
    other.send(bytes(10) + b"after")
    expected = [b"single"] * before + stream(payload, 100) + [b"after"]
    found: list[bytes] = []
    while len(found) < len(expected):
        packets = flatten(tun.read_burst())
        assert 0 < len(packets) <= MAX_READ
        found += packets
        assert tun.has_more is (len(found) < before + 300)
    assert found == expected
    assert tun.packets_read == len(expected)
    assert tun.read_burst() == []


def test_frames_that_make_no_sense_are_dropped_and_counted_and_the_rest_is_read(
    framed: tuple[Tun, socket.socket],
) -> None:
    tun, other = framed
    other.send(bytes(10) + b"one")
    other.send(VNET_HEADER.pack(NEEDS_CSUM, 3, 0, 100, 20, 6) + udp_datagram(bytes(500)))
    other.send(VNET_HEADER.pack(NEEDS_CSUM, 0, 0, 0, 20, 6000) + udp_datagram(bytes(500)))
    other.send(b"\1\1")
    other.send(VNET_HEADER.pack(NEEDS_CSUM, 0, 0, 0, 0, 0))
    other.send(bytes(10) + b"two")
    assert flatten(tun.read_burst()) == [b"one", b"two"]
    assert tun.counters.bad_frames == 4


def test_four_bad_frames_in_a_row_turn_reading_offloads_off_with_one_line(
    framed: tuple[Tun, socket.socket], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tun, other = framed
    asked: list[tuple[int, int]] = []

    class Fcntl:
        @staticmethod
        def ioctl(_: int, request: int, argument: int) -> None:
            asked.append((request, argument))

    monkeypatch.setattr(tun_module, "fcntl", Fcntl)
    bad = VNET_HEADER.pack(NEEDS_CSUM, 3, 0, 100, 20, 6) + udp_datagram(bytes(500))
    with caplog.at_level(logging.WARNING, "qtunnel.linux.tun"):
        for _ in range(3):
            other.send(bad)
        other.send(super_packet(bytes(300), 100))
        assert len(flatten(tun.read_burst())) == 3
        for _ in range(3):
            other.send(bad)
        tun.read_burst()
        assert asked == []
        for _ in range(5):
            other.send(bad)
        tun.read_burst()
    assert asked == [(0x400454D0, 0)]
    assert len(caplog.records) == 1
    assert tun.counters.bad_frames == 11


def test_neighbours_are_written_together_and_the_rest_alone_all_in_order(
    framed: tuple[Tun, socket.socket],
) -> None:
    tun, other = framed
    segments, small = stream(bytes(15_000), 1000), datagrams(bytes(2600), 200)
    packets = [b"first", *segments, b"between", *small, b"last"]
    assert tun.write_burst(packets) == len(packets)
    frames = received(other)
    assert [frames[0], frames[2], frames[4]] == [bytes(10) + b"first", bytes(10) + b"between", bytes(10) + b"last"]
    for frame in (frames[1], frames[3]):
        other.send(frame)
    assert flatten(tun.read_burst()) == [*segments, *small]
    assert tun.counters.coalesced_writes == 2
    assert tun.counters.packets_coalesced == 28


class Refusing:
    """Stands for the os module: writev fails with the codes of a list, one after the other, 0 being none."""

    def __init__(self, codes: list[int]) -> None:
        self._codes = codes

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def writev(self, fd: int, pieces: list[bytes]) -> int:
        code = self._codes.pop(0) if self._codes else 0
        if code:
            raise OSError(code, os.strerror(code))
        return os.writev(fd, pieces)


@pytest.mark.parametrize("make", [stream, datagrams])
@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EOPNOTSUPP])
def test_after_four_refusals_in_a_row_packets_of_that_protocol_are_written_alone(
    framed: tuple[Tun, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    make: Any,
    code: int,
) -> None:
    tun, other = framed
    packets = make(bytes(13_000), 1000)
    monkeypatch.setattr(tun_module, "os", Refusing([code, code, code, 0, code, code, code, code, code]))
    with caplog.at_level(logging.WARNING, "qtunnel.linux.tun"):
        for number in range(10):
            assert tun.write_burst(packets) == 13
            expected = [bytes(10) + packet for packet in packets]
            assert (received(other) == expected) == (number != 3)
    assert tun.counters.offload_fallbacks == 7
    assert tun.counters.coalesced_writes == 1
    assert (tun.coalesces_tcp, tun.coalesces_udp) == (make is datagrams, make is stream)
    assert len(caplog.records) == 1
    assert not tun.write_errors


def test_a_refusal_for_want_of_memory_is_no_reason_to_give_up(
    framed: tuple[Tun, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    tun, other = framed
    packets = stream(bytes(13_000), 1000)
    monkeypatch.setattr(tun_module, "os", Refusing([errno.ENOBUFS] * 9))
    for _ in range(9):
        assert tun.write_burst(packets) == 13
        assert len(received(other)) == 13
    assert tun.coalesces_tcp
    assert tun.counters.offload_fallbacks == 9


def test_super_packets_to_a_closed_tun_are_counted_as_its_packets(framed: tuple[Tun, socket.socket]) -> None:
    tun, _ = framed
    tun.close()
    assert tun.write_burst(stream(bytes(13_000), 1000)) == 0
    assert tun.write_errors == {errno.EBADF: 13}
    assert tun.detached
    assert tun.coalesces_tcp


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
