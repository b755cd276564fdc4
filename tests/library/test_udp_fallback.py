"""UDP offloads that the kernel refuses, at first or in the middle of a transfer: no byte is lost."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import struct
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest

import qtunnel
from qtunnel.linux import cmsg, udp_options
from qtunnel.linux.udp import UdpSocket
from tests.library.conftest import PATIENCE, Site
from tests.unit.ip.packets import ipv4

BURST = 40
BURSTS = 60
MIDDLE = BURSTS // 2
REPEAT_S = 0.5
REFUSALS = [errno.EINVAL, errno.EIO, errno.EMSGSIZE]


class Kernel:
    """Stands between every socket and the kernel. refuses_*: the errno that calls of that kind get, or 0."""

    def __init__(self) -> None:
        self.refuses_segments = 0
        self.refuses_receives = 0
        self.refuses_options: frozenset[int] = frozenset()
        self.code = errno.EINVAL
        self.calls = 0


class Between:
    """A socket with a faulty kernel under it."""

    def __init__(self, real: Any, kernel: Kernel) -> None:
        self._real = real
        self._kernel = kernel
        self._has_gro = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendmsg(self, buffers: Any, ancillary: Any = (), *rest: Any) -> int:
        code = self._kernel.refuses_segments
        if code and any(kind == cmsg.UDP_SEGMENT for _, kind, _ in ancillary):
            self._kernel.calls += 1
            raise OSError(code, os.strerror(code))
        return int(self._real.sendmsg(buffers, ancillary, *rest))

    def recvmsg_into(self, *arguments: Any) -> Any:
        code = self._kernel.refuses_receives
        if code and self._has_gro:
            self._kernel.calls += 1
            raise OSError(code, os.strerror(code))
        return self._real.recvmsg_into(*arguments)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if level == cmsg.SOL_UDP and option == cmsg.UDP_GRO:
            self._has_gro = bool(value)
        self._real.setsockopt(level, option, value)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    real_init, real_option = UdpSocket.__init__, udp_options._is_option_taken

    def init(self: UdpSocket, opened: Any, **keywords: Any) -> None:
        real_init(self, replace(opened, socket=Between(opened.socket, kernel)), **keywords)

    def is_option_taken(sock: Any, option: int, *rest: Any) -> bool:
        if option in kernel.refuses_options:
            return real_option(Refusing(kernel.code), option, *rest)  # type: ignore[arg-type]
        return real_option(sock, option, *rest)

    monkeypatch.setattr(UdpSocket, "__init__", init)
    monkeypatch.setattr(udp_options, "_is_option_taken", is_option_taken)
    return kernel


class Refusing:
    def __init__(self, code: int) -> None:
        self._code = code

    def setsockopt(self, *_: int) -> None:
        raise OSError(self._code, os.strerror(self._code))


async def transfer(
    site: Site, *, break_it: Any, repeated: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Send bursts both ways, compare each with what arrives; break_it is called in the middle.

    repeated: the burst of which what gets lost is sent again, as TCP does.
    """
    chance = random.Random(1)
    async with site.serve() as server, qtunnel.connect(site.client(server.port)) as tunnel:
        ours = next(str(each.ip) for each in tunnel.addresses if isinstance(each.ip, IPv4Address))
        theirs = str(IPv4Address(int(IPv4Address(ours)) // 256 * 256 + 1))
        for number in range(BURSTS):
            if number == MIDDLE:
                break_it()
            for sending, receiving, source, destination in (
                (tunnel, server, ours, theirs),
                (server, tunnel, theirs, ours),
            ):
                sent = [
                    ipv4(struct.pack("!I", at) + chance.randbytes(1200), source=source, destination=destination)
                    for at in range(BURST)
                ]
                sending.send(sent)
                arrived: list[bytes] = []
                async with asyncio.timeout(PATIENCE):
                    while len(arrived) < BURST:
                        try:
                            async with asyncio.timeout(REPEAT_S if number == repeated else None):
                                packets = await receiving.receive()
                        except TimeoutError:
                            sending.send([each for each in sent if each not in arrived])
                            continue
                        arrived += [each for each in packets if each[0] >> 4 == 4]
                assert (sorted(arrived) if number == repeated else arrived) == sent
        return tunnel.status(), server.status()


@pytest.mark.parametrize("code", REFUSALS)
async def test_segmented_sends_refused_in_the_middle_cost_no_byte(
    site: Site, kernel: Kernel, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    def break_it() -> None:
        kernel.refuses_segments = code

    with caplog.at_level(logging.WARNING, "qtunnel.linux.udp"):
        client, server = await transfer(site, break_it=break_it)
    for socket in (client["socket"], server["sockets"][0]):
        assert (socket["gso"], socket["gso_fallbacks"]) == (False, 1)
        assert 0 < socket["gso_share"] < 1
    assert kernel.calls == (
        4 if code == errno.EMSGSIZE else 2
    )  # that may be about an earlier datagram: tried again
    assert sum("refused a segmented send" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize("code", REFUSALS)
async def test_receives_refused_in_the_middle_cost_only_what_the_kernel_had_joined_already(
    site: Site, kernel: Kernel, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without UDP_GRO it no longer says where the datagrams of a joined buffer begin."""

    def break_it() -> None:
        kernel.refuses_receives = code

    with caplog.at_level(logging.WARNING, "qtunnel.linux.udp"):
        client, server = await transfer(site, break_it=break_it, repeated=MIDDLE)
    for socket in (client["socket"], server["sockets"][0]):
        assert (socket["gro"], socket["gro_fallbacks"]) == (False, 1)
    assert kernel.calls == 8
    assert sum("receive many datagrams at once" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize("code", [*REFUSALS, errno.ENOPROTOOPT])
async def test_a_kernel_without_udp_offloads_carries_every_byte(
    site: Site, kernel: Kernel, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.code = code
    kernel.refuses_options = frozenset({cmsg.UDP_SEGMENT, cmsg.UDP_GRO})
    with caplog.at_level(logging.INFO, "qtunnel.linux.udp_options"):
        client, server = await transfer(site, break_it=lambda: None)
    for socket in (client["socket"], server["sockets"][0]):
        assert (socket["gso"], socket["gso_fallbacks"], socket["gso_share"]) == (False, 1, 0.0)
        assert (socket["gro"], socket["gro_fallbacks"]) == (False, 1)
    for name in ("UDP_SEGMENT", "UDP_GRO"):
        assert sum(f"no {name}" in record.message for record in caplog.records) == 2


async def test_each_has_a_switch(site: Site, kernel: Kernel) -> None:
    kernel.refuses_segments = kernel.refuses_receives = 0
    quic = replace(site.client(1).quic, gso=False, gro=False)
    async with site.serve() as server:
        config = replace(site.client(server.port), quic=quic)
        async with qtunnel.connect(config) as tunnel:
            socket = tunnel.status()["socket"]
    assert (socket["gso"], socket["gro"]) == (False, False)
    assert (socket["gso_fallbacks"], socket["gro_fallbacks"]) == (0, 0)
