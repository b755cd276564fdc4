"""Thousands of connects and disconnects with lossy traffic between: nothing grows (A73)."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qtunnel
from qtunnel.burst import SendResult
from qtunnel.config import QuicConfig
from qtunnel.linux.udp import UdpSocket
from tests.library.conftest import PATIENCE, POOL4, Site
from tests.sim.packets import packet4

if TYPE_CHECKING:
    from qtunnel.burst import Transmit

QUIC = QuicConfig(path_mtu=1500, idle_timeout=5.0, keep_alive=1.0)
"""Where the last word of a client is lost, its server waits so long."""
AT_ONCE = 100
"""Most of a cycle is waiting for what was lost to be sent again."""
LOSS = 0.05
PACKETS = 30
WARM_UP = 100
MAX_GROWTH = 1024
"""Bytes of memory a cycle, of MIN_COUNTED cycles at least: fewer say nothing."""
MIN_COUNTED = 4000


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Return the bytes this process has in memory."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch, seed: int) -> list[int]:
    """Lose some of all sends, whoever sends; returns how many were lost, and how many there were."""
    chance = random.Random(seed)
    counts = [0, 0]
    real = UdpSocket.send

    def send(self: UdpSocket, transmit: Transmit) -> SendResult:
        counts[1] += 1
        if chance.random() < LOSS:
            counts[0] += 1
            return SendResult.SENT
        return real(self, transmit)

    monkeypatch.setattr(UdpSocket, "send", send)
    return counts


async def cycle(config: qtunnel.ClientConfig) -> int:
    """Connect, send a burst to ourselves by way of the server, take what comes back, and leave."""
    async with qtunnel.connect(config) as tunnel:
        address = next(each.ip for each in tunnel.addresses if isinstance(each.ip, IPv4Address))
        arrived = 0
        async with asyncio.timeout(PATIENCE):
            while not arrived:
                tunnel.send([packet4(address, POOL4.ip, number, size=600) for number in range(PACKETS)])
                try:
                    async with asyncio.timeout(0.5):
                        arrived = len(await tunnel.receive())
                except TimeoutError:
                    continue  # lost: again
        return arrived


async def answer(server: qtunnel.TunnelServer) -> None:
    while packets := await server.receive():
        server.send([packet[:12] + packet[16:20] + packet[12:16] + packet[20:] for packet in packets])


async def run_cycles(site: Site, count: int, lossy: list[int]) -> None:
    users = [f"u{number}" for number in range(AT_ONCE)]
    site.tokens.update({user: f"{user}-{'x' * 40}" for user in users})
    async with site.serve(quic=QUIC) as server:
        answering = asyncio.create_task(answer(server))
        waiting = count + max(WARM_UP, count // 5)
        before: tuple[int, int, int] | None = None
        sizes: list[int] = []
        started = time.monotonic()

        async def go_on(user: str, until: int) -> None:
            nonlocal waiting
            config = replace(site.client(server.port, user), want_ipv6=False, quic=QUIC)
            while waiting > until:
                waiting -= 1
                await cycle(config)
                if waiting > 0 and waiting % 500 == 0:
                    sizes.append(resident())

        async def settle() -> tuple[int, int, int]:
            async with asyncio.timeout(PATIENCE):
                while server.status()["connections"]:  # noqa: ASYNC110 - nothing tells of the last closing period
                    await asyncio.sleep(0.1)
            gc.collect()
            return resident(), open_descriptors(), len(asyncio.all_tasks())

        for until in (count, 0):
            async with asyncio.TaskGroup() as group:
                for user in users:
                    group.create_task(go_on(user, until))
            if before is None:
                before = await settle()
        after = await settle()
        lost, sends = lossy
        grown = (after[0] - before[0]) / count
        print(
            f"{count} cycles in {time.monotonic() - started:.0f} s, {lost} of {sends} sends lost; memory "
            f"{before[0] / 1e6:.2f} MB, then {after[0] / 1e6:.2f}, {grown:.0f} B a cycle; "
            f"descriptors {before[1]} and {after[1]}, tasks {before[2]} and {after[2]}; on the way "
            f"{[round(size / 1e6, 1) for size in sizes]} MB"
        )
        assert after[1:] == before[1:]
        assert after[0] - before[0] < MAX_GROWTH * max(count, MIN_COUNTED)
        assert lost > sends * LOSS / 2
        status = server.status()
        assert (status["internal_errors"], status["sessions"]) == (0, [])
    await answering


async def test_a73_cycles_with_loss_leave_no_task_and_no_descriptor(site: Site, lossy: list[int]) -> None:
    await run_cycles(site, 60, lossy)


@pytest.mark.slow
async def test_a73_five_thousand_cycles_with_loss_leave_nothing(site: Site, lossy: list[int]) -> None:
    await run_cycles(site, 5000, lossy)
