"""A client that was killed comes back, perhaps from elsewhere, and takes the place of its own ghost (A47)."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.linux.pings import Pinger, now
from tests.linux.site import INNER4, Site

pytestmark = pytest.mark.root


@pytest.fixture
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().up()
        yield site


def test_a47_a_killed_client_gets_its_address_and_its_downlink_back_at_once(site: Site) -> None:
    client = site.client()
    inner = {version: client.address(version) for version in (4, 6)}
    client.host.add_address("eth0", "198.18.1.77/24")
    downlink = Pinger(site, site.h, inner[4])
    downlink.wait_for_answer_after(0.0)
    for outer in ("198.18.1.77", "198.18.1.2", "198.18.1.2"):
        client.daemon.stop(signal.SIGKILL)
        client.host.run(f"ip route replace default via 198.18.1.1 src {outer}")
        client.start()
        client.wait_up()
        assert downlink.wait_for_answer_after(now()) < 1.0
        assert {version: client.address(version) for version in (4, 6)} == inner
        (session,) = site.server_status()["sessions"]
        assert session["user"] == "c1"
        assert session["remote"].startswith(f"{outer}:")
        assert session["addresses"] == [inner[4], inner[6]]
    assert client.host.run(f"ip route get {INNER4}").split()[2].startswith("qtun")
