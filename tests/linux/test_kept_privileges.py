"""Once set up, both processes have CAP_NET_ADMIN and nothing else, and can get nothing back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.linux.daemons import Daemon, wait_until
from tests.linux.pings import assert_reaches
from tests.linux.site import HOST4, HOST6, Site

pytestmark = pytest.mark.root

NET_ADMIN = 1 << 12
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server("--masquerade")
        site.client().up("--masquerade")
        yield site


def capabilities(daemon: Daemon) -> list[dict[str, int]]:
    """Return the capability sets, and NoNewPrivs, of every thread of a process."""
    found = []
    for status in Path(f"/proc/{daemon.pid}/task").glob("*/status"):
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        found.append({**{name: int(fields[name], 16) for name in SETS}, "NoNewPrivs": int(fields["NoNewPrivs"])})
    return found


def has_only_net_admin(daemon: Daemon) -> bool:
    threads = capabilities(daemon)
    return bool(threads) and all(
        thread["NoNewPrivs"] == 1 and all(thread[name] in (0, NET_ADMIN) for name in SETS) for thread in threads
    )


def test_server_and_client_keep_net_admin_alone(site: Site) -> None:
    for daemon in (site.server, site.client().daemon):
        assert Path(f"/proc/{daemon.pid}/cmdline").read_bytes().count(b"qtunnel") == 1
        wait_until(lambda daemon=daemon: has_only_net_admin(daemon), f"{daemon.name} to give up its privileges")
        assert {thread["CapEff"] for thread in capabilities(daemon)} == {NET_ADMIN}


def test_with_these_they_work_and_undo_everything(site: Site) -> None:
    client = site.client()
    assert_reaches(client.host, HOST4, HOST6)
    site.server.stop()
    site.start_server("--masquerade")
    client.wait_up(count=2)
    assert_reaches(client.host, HOST4, HOST6)
    for host, daemon in ((client.host, client.daemon), (site.s, site.server)):
        assert "masquerade" in host.run("nft list ruleset")
        assert daemon.stop() == 0
        assert "cannot undo" not in daemon.text()
        assert host.run("nft list ruleset") == ""
        assert host.sysctl("net/ipv4/ip_forward") == "0"


def test_keeping_them_is_possible(site: Site) -> None:
    site.start_server("--keep-privileges")
    full = int(dict(_own_status())["CapEff"], 16)
    assert {thread["CapEff"] for thread in capabilities(site.server)} == {full}


def _own_status() -> Iterator[tuple[str, str]]:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":\t")
        yield name, value
