"""A kernel that refuses an offload, at first or in the middle of a transfer: nothing is lost but speed."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest

from qtunnel.burst import MAX_BURST
from qtunnel.linux import tun as tun_module
from qtunnel.linux.netlink import Netlink
from qtunnel.linux.tun import Tun
from tests.linux.namespaces import Namespaces
from tests.linux.tun_pair import pair
from tests.unit.linux.packets import stream

pytestmark = pytest.mark.root


class Refusing:
    """Stands for the os module in qtunnel.linux.tun: from some call on, so many calls of one name fail."""

    def __init__(self, name: str, code: int, *, after: int, times: int) -> None:
        self._name = name
        self._code = code
        self._calls = range(after, after + times)
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._refuse(real) if name == self._name else real

    def _refuse(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls - 1 in self._calls:
                raise OSError(self._code, os.strerror(self._code))
            return real(*arguments)

        return call


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EMSGSIZE])
def test_super_packets_refused_in_the_middle_of_a_transfer_cost_no_packet_and_are_given_up(
    version: int, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusing = Refusing("writev", code, after=50, times=1 << 30)
    with caplog.at_level(logging.WARNING, "qtunnel.linux.tun"), pair() as (hosts, forwarder):
        monkeypatch.setattr(tun_module, "os", refusing)
        hosts.transfer(0, version, 10_000_000, 300_000)
        writer = hosts.tuns[1]
    assert forwarder.wrong == forwarder.refused == 0
    assert writer.counters.coalesced_writes == 50
    assert writer.counters.offload_fallbacks == 4
    assert not writer.coalesces_tcp
    assert writer.coalesces_udp
    assert not writer.write_errors
    assert writer.refused == {"writes of TCP": 1}
    assert [record.message for record in caplog.records if "tun:" in record.message] == [
        f"tun: the kernel refuses many TCP packets at once ({os.strerror(code)}); writing one by one from now on"
    ]


def test_one_refused_super_packet_is_repeated_and_the_offload_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "qtunnel.linux.tun"), pair() as (hosts, forwarder):
        monkeypatch.setattr(tun_module, "os", Refusing("writev", errno.ENOBUFS, after=50, times=2))
        hosts.transfer(0, 4, 10_000_000, 300_000)
        writer = hosts.tuns[1]
    assert forwarder.wrong == forwarder.refused == 0
    assert writer.counters.offload_fallbacks == 2
    assert writer.counters.coalesced_writes > 50
    assert writer.coalesces_tcp
    assert caplog.records == []


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EMSGSIZE])
def test_reads_that_fail_in_the_middle_of_a_transfer_turn_the_reading_of_super_packets_off(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A packet the kernel cannot describe is lost with its EINVAL; after some it is asked for plain ones."""

    def readv(fd: int, buffers: list[Any]) -> int:
        size = os.readv(fd, buffers)
        if fd == reader.fileno() and failing and buffers[0][1]:
            raise OSError(code, os.strerror(code))
        return size

    fake = Refusing("nothing", 0, after=0, times=0)
    fake.readv = readv  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, "qtunnel.linux.tun"), pair() as (hosts, forwarder):
        reader = hosts.tuns[0]
        failing = False
        monkeypatch.setattr(tun_module, "os", fake)
        hosts.transfer(0, 4, 2_000_000, 300_000)
        before = reader.counters.super_packets_read
        assert before > 10
        failing = True
        hosts.transfer(0, 4, 5_000_000, 300_000)
    assert forwarder.wrong == forwarder.refused == 0
    assert reader.counters.super_packets_read == before
    assert 4 <= reader.read_errors[code] < 20
    assert reader.refused == {"reads": 1}
    assert sum("one by one from now on" in record.message for record in caplog.records) == 1


def ioctl_that_refuses(code: int, refused: Callable[[int, Any], bool]) -> Callable[..., Any]:
    def ioctl(fd: int, request: int, argument: Any = 0) -> Any:
        if refused(request, argument):
            raise OSError(code, os.strerror(code))
        return fcntl.ioctl(fd, request, argument)

    return ioctl


class Fcntl:
    """Stands for the fcntl module in qtunnel.linux.tun."""

    def __init__(self, ioctl: Callable[..., Any]) -> None:
        self.ioctl = ioctl


TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EMSGSIZE])
def test_a_kernel_without_vnet_hdr_gets_plain_packets(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(request: int, argument: Any) -> bool:
        return request == TUNSETIFF and bool(struct.unpack_from("16xH", argument)[0] & 0x4000)

    monkeypatch.setattr(tun_module, "fcntl", Fcntl(ioctl_that_refuses(code, refused)))
    with caplog.at_level(logging.INFO, "qtunnel.linux.tun"), pair() as (hosts, forwarder):
        hosts.transfer(0, 4, 3_000_000, 100_000)
    assert forwarder.wrong == forwarder.refused == 0
    assert forwarder.longest_burst <= MAX_BURST
    for tun in hosts.tuns:
        assert not tun.coalesces_tcp
        assert tun.counters == tun_module.TunCounters()
        assert tun.refused == {"vnet_hdr": 1}
    assert sum("no virtio_net_hdr" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EPERM])
def test_a_kernel_that_takes_super_packets_but_gives_none_still_takes_them(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ioctl = ioctl_that_refuses(code, lambda request, _: request == TUNSETOFFLOAD)
    monkeypatch.setattr(tun_module, "fcntl", Fcntl(ioctl))
    with caplog.at_level(logging.INFO, "qtunnel.linux.tun"), pair() as (hosts, forwarder):
        hosts.transfer(0, 4, 3_000_000, 100_000)
    assert forwarder.wrong == forwarder.refused == 0
    assert hosts.tuns[0].counters.super_packets_read == 0
    assert hosts.tuns[1].counters.coalesced_writes > 10
    assert hosts.tuns[0].refused == hosts.tuns[1].refused == {"offloads": 1}
    assert sum("offloads 0x0 and no more" in record.message for record in caplog.records) == 2


def test_a_kernel_without_uso_gives_super_packets_of_tcp_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ioctl = ioctl_that_refuses(errno.EINVAL, lambda request, what: request == TUNSETOFFLOAD and bool(what & 0x60))
    monkeypatch.setattr(tun_module, "fcntl", Fcntl(ioctl))
    with pair() as (hosts, forwarder):
        hosts.send_datagrams(4, 1200, 40, gro=False)
        assert hosts.tuns[0].counters.super_packets_read == 0
        hosts.transfer(0, 4, 3_000_000, 100_000)
        assert hosts.tuns[0].counters.super_packets_read > 10
    assert forwarder.wrong == forwarder.refused == 0


def test_a_tun_whose_segments_cannot_be_limited_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def set_link(*_: Any, **__: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(Netlink, "set_link", set_link)
    with pair() as (hosts, forwarder):
        hosts.transfer(0, 4, 3_000_000, 100_000)
    assert forwarder.wrong == forwarder.refused == 0
    assert hosts.tuns[0].counters.super_packets_read > 10


def test_an_interface_taken_down_is_no_reason_to_give_the_offload_up(lab: Namespaces) -> None:
    with lab.add("h").entered():
        tun = Tun.open("qtt0")
        try:
            for _ in range(10):
                assert tun.write_burst(stream(bytes(13_000), 1000)) == 0
            assert tun.write_errors == {errno.EIO: 130}
            assert tun.coalesces_tcp
        finally:
            tun.close()
