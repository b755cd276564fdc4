"""examples/minimal_client.py with a TUN, against a real server."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.linux.footprint import assert_same_footprint, footprint
from tests.linux.forged import tun_of
from tests.linux.pings import assert_reaches
from tests.linux.site import HOST4, HOST6, Site

pytestmark = pytest.mark.root

EXAMPLE = Path(__file__).parents[2] / "examples" / "minimal_client.py"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        yield site


def test_the_shortest_client_carries_packets_until_ctrl_c(site: Site) -> None:
    client = site.client()
    before = footprint(client.host)
    example = site.start(
        client.host,
        [sys.executable, str(EXAMPLE)],
        log="example",
        environment={"PYTHONPATH": str(EXAMPLE.parents[1]), "PYTHONWARNINGS": "error"},
        input_text=site.add_user("c1") + "\n",
    )
    shown = example.wait_for(r"^connected: (\S+), (\S+), packets of up to (\d+) bytes$")
    assert (shown[1], shown[2]) == (client.address(4), client.address(6))
    assert f"mtu {shown[3]} " in client.host.run(f"ip link show {tun_of(client.host)}")
    assert_reaches(client.host, HOST4, HOST6)
    assert_reaches(site.h, client.address(4), client.address(6))
    assert example.stop(signal.SIGINT) == 0
    assert example.text().splitlines() == [shown[0]]
    assert_same_footprint(client.host, before)
