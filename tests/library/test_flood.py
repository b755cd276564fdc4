"""A flood of spoofed Initials against a real server process with real clients (A72).

Its twin in virtual time, with exact counts, is in tests/unit/quic/test_endpoint.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import qtunnel
from tests.sim.packets import number_of, packet4

CLIENTS = 5
PER_SECOND = 50
SIZE = 1000
ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def child(*arguments: str, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python child with the state in directory; it is stopped at the end."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "QTUNNEL_STATE_DIR": str(directory / "state"),
        "QTUNNEL_RUNTIME_DIR": str(directory / "run"),
        "QTUNNEL_CONFIG": "",
    }
    process = await asyncio.create_subprocess_exec(
        *("timeout", "300", sys.executable, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode()


async def output_of(*arguments: str, directory: Path) -> str:
    async with child("-m", "qtunnel", *arguments, directory=directory) as process:
        output, _ = await process.communicate()
        assert process.returncode == 0, output
        return output.decode()


def resident(process: asyncio.subprocess.Process) -> int:
    """Return the resident bytes of timeout's child."""
    (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


class Traffic:
    """Packets from each client to the next, at a steady rate; what was sent and what came."""

    def __init__(self, tunnels: Sequence[qtunnel.TunnelClient]) -> None:
        self.tunnels = tunnels
        self.sent = 0
        self.arrived: set[tuple[int, int]] = set()

    async def run(self, seconds: float) -> float:
        """Send for so long; return the share that arrived."""
        self.sent, self.arrived = 0, set()
        receivers = [asyncio.create_task(self._receive(each)) for each in range(CLIENTS)]
        for _ in range(int(seconds * PER_SECOND)):
            self._send()
            await asyncio.sleep(1 / PER_SECOND)
        await asyncio.sleep(2)  # for what is still on its way
        for task in receivers:
            task.cancel()
        return len(self.arrived) / (self.sent * CLIENTS)

    def _send(self) -> None:
        addresses = [tunnel.addresses[0].ip for tunnel in self.tunnels]
        for each, tunnel in enumerate(self.tunnels):
            target = addresses[(each + 1) % CLIENTS]
            tunnel.send([packet4(addresses[each], target, self.sent, size=SIZE)])  # type: ignore[arg-type]
        self.sent += 1

    async def _receive(self, each: int) -> None:
        while packets := await self.tunnels[each].receive():
            self.arrived.update((each, number_of(packet)) for packet in packets)


@pytest.mark.slow
async def test_a72_clients_get_through_a_minute_of_spoofed_initials(tmp_path: Path, seed: int) -> None:
    port = free_port()
    serve = ("-m", "qtunnel", "serve", "--no-tun", "--listen", "127.0.0.1", "--port", port, "--client-to-client")
    async with (
        child(*serve, "--path-mtu", "1500", directory=tmp_path) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        assert f"127.0.0.1:{port}" in await line_of(server)
        tunnels = []
        for number in range(CLIENTS):
            link = await output_of("user", "add", f"u{number}", "--print", directory=tmp_path)
            found = re.search(r"qtunnel://\S+", link)
            assert found is not None
            config = qtunnel.parse_join_link(found[0]).client_config(want_ipv6=False)
            tunnels.append(await stack.enter_async_context(qtunnel.connect(config)))
        traffic = Traffic(tunnels)
        before = await traffic.run(5)
        flooding = ("-m", "tests.library.flooder", port, "10000", "60", str(seed))
        async with child(*flooding, directory=tmp_path) as flooder:
            assert await line_of(flooder) == "ready\n"
            assert flooder.stdin is not None
            flooder.stdin.write(b"\n")
            during = asyncio.create_task(traffic.run(58))
            sizes = []
            for _ in range(29):
                await asyncio.sleep(2)
                sizes.append(resident(server))
            share = await during
            sent, retries = map(int, (await line_of(flooder)).split())
        early, late = statistics.median(sizes[5:10]), statistics.median(sizes[-5:])
        print(
            f"sent {sent}, Retry {retries}; arrived {before:.1%} before, {share:.1%} during; "
            f"RSS {sizes[0] / 1e6:.1f} MB at the start, {early / 1e6:.1f} after 15 s, {late / 1e6:.1f} at the end"
        )
        assert before == 1.0
        assert share >= 0.9
        assert retries > sent / 2
        assert sent > 300_000
        assert late - early < 4e6
        assert late - sizes[0] < 20e6
        assert min(tunnel.status()["since_s"] for tunnel in tunnels) > 60  # none was lost
