"""Starting and stopping, also in the middle: nothing is left (A77)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qtunnel
from tests.library.conftest import Site


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def cycle(config: qtunnel.ClientConfig, rng: random.Random) -> None:
    """One start of a client, cancelled after a random number of turns of the loop, or closed when it is up."""

    async def use() -> None:
        async with qtunnel.connect(config) as tunnel:
            tunnel.send([b"\x45"])
            await tunnel.receive() if rng.random() < 0.5 else await asyncio.sleep(0)

    task = asyncio.create_task(use())
    for _ in range(rng.randrange(60)):
        await asyncio.sleep(0)
        if task.done():
            break
    if rng.random() < 0.3:
        await asyncio.sleep(rng.random() * 0.02)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, qtunnel.QTunnelError):
        await task


async def run_cycles(site: Site, count: int, seed: int) -> None:
    rng = random.Random(seed)
    async with site.serve() as server:
        config = site.client(server.port)
        for _ in range(5):
            await cycle(config, rng)
        gc.collect()
        tasks, descriptors = len(asyncio.all_tasks()), open_descriptors()
        for number in range(count):
            await cycle(config, rng)
            left = len(asyncio.all_tasks())
            assert left <= tasks, f"seed {seed}, cycle {number}: {asyncio.all_tasks()}"
        gc.collect()
        assert open_descriptors() == descriptors, f"seed {seed}"


async def test_a77_cancelled_at_random_points_leaves_no_task_and_no_descriptor(site: Site, seed: int) -> None:
    await run_cycles(site, 60, seed)


@pytest.mark.slow
async def test_a77_a_thousand_cycles(site: Site, seed: int) -> None:
    await run_cycles(site, 1000, seed)


async def test_a77_servers_cancelled_at_random_points_leave_nothing(site: Site, seed: int) -> None:
    rng = random.Random(seed)

    async def use() -> None:
        async with site.serve():
            await asyncio.sleep(0.01)

    tasks, descriptors = len(asyncio.all_tasks()), open_descriptors()
    for _ in range(50):
        task = asyncio.create_task(use())
        for _ in range(rng.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert len(asyncio.all_tasks()) == tasks
    assert open_descriptors() == descriptors


async def test_a_server_does_not_go_on_without_one_of_its_tasks(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise OSError("no netlink")

    async with site.serve() as server:
        server._start_task(fail(), "lookup", is_vital=False)
        await asyncio.sleep(0.01)
        assert "lookup failed" in caplog.text
        server._start_task(fail(), "links")
        with pytest.raises(OSError, match="no netlink"):
            async with asyncio.timeout(5):
                await server.wait_closed()
    assert "the server ends: no netlink" in caplog.text


@pytest.mark.parametrize(
    "settings", [{"target": "192.0.2.1/33"}, {"fingerprint": None, "ca_file": "/nonexistent.pem"}], ids=str
)
async def test_a_client_that_cannot_start_leaves_no_descriptor(
    site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    quic = replace(site.quic, secrets_log_file=str(tmp_path / "keys.txt"))
    config = replace(site.client(9, quic=quic), **settings)
    descriptors = open_descriptors()
    gc.disable()  # it would close what nothing else closes
    try:
        with pytest.raises(qtunnel.ConfigError) as caught:
            async with asyncio.timeout(5), qtunnel.connect(config):
                pass
        assert open_descriptors() == descriptors, caught.value
    finally:
        gc.enable()
