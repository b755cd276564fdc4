"""Buffers and offload: the exact sysctl and value are named (A62)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.proc_files import ProcFiles
from qtunnel.cli.checks.sockets import check_buffers, check_lost_datagrams, check_offload
from qtunnel.config import QuicConfig
from qtunnel.errors import SystemSetupError
from qtunnel.linux.udp import UdpSocket

Make = Callable[..., ProcFiles]


@dataclass
class FakeSocket:
    receive_buffer: int = 4 * 1024 * 1024
    send_buffer: int = 4 * 1024 * 1024
    gso_available: bool = True
    gro_available: bool = True
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


def give(monkeypatch: pytest.MonkeyPatch, udp: FakeSocket) -> None:
    monkeypatch.setattr(UdpSocket, "open", lambda *_, **__: udp)


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> UdpSocket:
        raise SystemSetupError("no IPv4 here")

    monkeypatch.setattr(UdpSocket, "open", fail)


def test_buffers_as_asked_for_are_fine(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    udp = FakeSocket()
    give(monkeypatch, udp)
    assert [finding.level for finding in check_buffers(proc_of(), QuicConfig())] == [Level.OK, Level.OK]
    assert udp.is_closed


def test_a_small_buffer_names_the_sysctl_and_the_value(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, FakeSocket(receive_buffer=212992))
    proc = proc_of({"sys/net/core/rmem_max": "212992"})
    receive, send = check_buffers(proc, QuicConfig())
    assert receive.level is Level.WARNING
    assert "212992 bytes instead of 4194304, since net.core.rmem_max is 212992" in receive.found
    assert receive.remedy.startswith("sysctl -w net.core.rmem_max=4194304 ")
    assert send.level is Level.OK


def test_a_kernel_without_offload_is_only_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, FakeSocket(gso_available=False, gro_available=False))
    (finding,) = check_offload("5.10.0")
    assert finding.level is Level.NOTE
    assert "no UDP_SEGMENT (GSO) and no UDP_GRO" in finding.found


@pytest.mark.parametrize(
    ("release", "is_faulty"),
    [("7.0.0", True), ("7.1.4-arch1", True), ("7.1.5", False), ("6.18.44-fc", False), ("odd", False)],
)
def test_kernels_known_to_send_wrong_checksums_are_named(
    monkeypatch: pytest.MonkeyPatch, release: str, is_faulty: bool
) -> None:
    give(monkeypatch, FakeSocket())
    findings = check_offload(release)
    assert (Level.WARNING in [finding.level for finding in findings]) is is_faulty


def test_a_host_without_ipv4_is_not_checked(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch)
    assert [finding.level for finding in check_buffers(proc_of(), QuicConfig())] == [Level.NOT_CHECKED]
    assert [finding.level for finding in check_offload("6.1")] == [Level.NOT_CHECKED]


def test_lost_datagrams_are_told_by_their_kernel_names(proc_of: Make) -> None:
    assert check_lost_datagrams(proc_of())[0].level is Level.NOT_CHECKED
    counters = "Udp: RcvbufErrors InCsumErrors\nUdp: {} {}\n"
    assert check_lost_datagrams(proc_of({"net/snmp": counters.format(0, 0)}))[0].level is Level.OK
    lost, wrong = check_lost_datagrams(proc_of({"net/snmp": counters.format(284, 5)}))
    assert "RcvbufErrors is 284" in lost.found
    assert "InCsumErrors is 5" in wrong.found
