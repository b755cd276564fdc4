"""Clients with a TUN, cancelled at random points of their start: no task, descriptor, TUN or route is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.linux.footprint import assert_same_footprint, footprint
from tests.linux.site import Site

pytestmark = pytest.mark.root

CYCLES = """
import asyncio, os, random, sys
import qtunnel

config = qtunnel.parse_join_link(sys.stdin.readline()).client_config()
rng = random.Random(sys.argv[1])

async def stay():
    async with qtunnel.connect(config, tun=True) as tunnel:
        await tunnel.wait_closed()

async def cycle():
    task = asyncio.create_task(stay())
    await asyncio.sleep(rng.random() ** 2 * 0.25)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled(), task.exception()

async def main():
    for _ in range(5):
        await cycle()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(int(sys.argv[2])):
        await cycle()
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()
    assert len(os.listdir("/proc/self/fd")) == before
    print("nothing left", flush=True)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        yield site


def test_a77_forty_cycles_leave_nothing(site: Site, seed: int) -> None:
    run_cycles(site, seed, 40)


@pytest.mark.slow
def test_a77_a_thousand_cycles_leave_nothing(site: Site, seed: int) -> None:
    run_cycles(site, seed, 1000)


def run_cycles(site: Site, seed: int, cycles: int) -> None:
    client = site.client()
    before = footprint(client.host)
    running = site.start(
        client.host,
        [sys.executable, "-W", "error", "-c", CYCLES, str(seed), str(cycles)],
        log="cycles",
        input_text=site.add_user("c1") + "\n",
    )
    assert running.wait(timeout=30 + cycles) == 0, running.text()
    assert "nothing left" in running.text()
    assert_same_footprint(client.host, before)
