"""Minutes at full speed across several key updates: one connection all the time, and memory that does not grow."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import pytest

from tests.linux.daemons import Daemon
from tests.linux.site import HOST4, Site

pytestmark = [pytest.mark.root, pytest.mark.slow]

WARM_UP_S = 15
GROWTH = 4e6
"""Bytes; a leak of one byte for each packet would be some ten times that in a minute."""

# qtunnel with another number of packets for each key: the settings have it, and no flag sets it.
QTUNNEL = """
import sys
from qtunnel.cli.main import main
from qtunnel.quic.settings import ConnectionSettings, EndpointSettings
for each in (ConnectionSettings, EndpointSettings):
    each.__init__.__kwdefaults__["key_update_after"] = {after}
sys.exit(main())
"""
RECEIVE = """
import socket, sys, zlib
with socket.create_server((sys.argv[1], 5300)) as listening:
    print("listening", flush=True)
    connection, _ = listening.accept()
    size = check = 0
    while data := connection.recv(1 << 20):
        size += len(data)
        check = zlib.crc32(data, check)
    print("received", size, check, flush=True)
"""
SEND = """
import os, socket, sys, time, zlib
blocks = [os.urandom(1 << 20) for _ in range(8)]
size = check = 0
with socket.create_connection((sys.argv[1], 5300), timeout=20) as connection:
    connection.settimeout(20)
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        block = blocks[(size >> 20) % 8]
        connection.sendall(block)
        size += len(block)
        check = zlib.crc32(block, check)
print("received", size, check)
"""


def resident(daemon: Daemon) -> int:
    """Return the bytes a program has in memory."""
    lines = Path(f"/proc/{daemon.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


@pytest.mark.parametrize(("seconds", "packets_a_key"), [(60, 1 << 18), (600, 1 << 22)], ids=["1 min", "10 min"])
def test_full_speed_crosses_key_updates_on_one_connection_and_memory_stays(
    seconds: int, packets_a_key: int
) -> None:
    with Site.open() as site:
        site.command = (sys.executable, "-c", QTUNNEL.format(after=packets_a_key))
        site.life_limit = seconds + 200
        site.start_server()
        client = site.client()
        client.up()
        receiving = site.start(site.h, [sys.executable, "-c", RECEIVE, HOST4], log="receive")
        receiving.wait_for("^listening$")
        started = time.monotonic()
        sending = site.start(client.host, [sys.executable, "-c", SEND, HOST4, str(seconds)], log="send")
        sizes: dict[str, list[int]] = {"client": [], "server": []}
        while sending.code is None:
            # A sample a second; the end of the transfer is what is waited for.
            time.sleep(1)
            if time.monotonic() - started > WARM_UP_S:
                sizes["client"].append(resident(client.daemon))
                sizes["server"].append(resident(site.server))
        assert sending.code == 0, sending.text()
        sent = receiving.wait_for(r"^received (\d+) (\d+)$")[0]
        assert sent in sending.text()
        status = client.status()
        (session,) = site.server_status()["sessions"]
        rate = int(sent.split()[1]) * 8 / seconds / 1e6
        grown = {}
        for name, samples in sizes.items():
            part = max(1, len(samples) // 5)
            grown[name] = statistics.median(samples[-part:]) - statistics.median(samples[:part])
        print(
            f"{rate:.0f} Mbit/s, {status['packets_out']:,} packets out, key updates {status['key_updates']} and "
            f"{session['key_updates']}, RSS {sizes['client'][-1] / 1e6:.1f}, {sizes['server'][-1] / 1e6:.1f} MB, "
            f"grown by {grown['client'] / 1e3:.0f} and {grown['server'] / 1e3:.0f} kB; limited by "
            f"{status['health']['limits']} and {site.server_status()['health']['limits']}"
        )
        assert client.daemon.text().count("connected to") == 1
        assert min(status["since_s"], session["since_s"]) > seconds
        assert min(status["key_updates"], session["key_updates"]) >= 3
        assert max(grown.values()) < GROWTH
