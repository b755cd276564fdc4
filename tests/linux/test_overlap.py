"""Networks that exist twice: refused with an exit code of its own before anything is broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qtunnel.cli.exit_codes import ExitCode
from tests.linux.footprint import assert_same_footprint, footprint
from tests.linux.pings import assert_reaches
from tests.linux.site import COMMAND, HOST4, POOL4, POOL6, Site

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().join(site.add_user("c1"))
        site.lab.join(site.client().host, "lan", site.lab.add("l"), "eth0")
        yield site


@pytest.mark.parametrize("lan", ["198.19.77.200/24", "2001:db8:77::200/64"], ids=["IPv4", "IPv6"])
def test_a_client_whose_lan_is_the_servers_pool_is_refused(site: Site, lan: str) -> None:
    client = site.client()
    client.host.add_address("lan", lan)
    before = footprint(client.host)
    daemon = client.start("--route", "default")
    assert daemon.wait() == ExitCode.OVERLAP
    pool = POOL4.network if "." in lan else POOL6.network
    assert f"{pool}" in daemon.text()
    assert "lan" in daemon.text()
    assert "choose routes with --route" in daemon.text()
    assert_same_footprint(client.host, before)
    client.host.run(f"ip address del {lan} dev lan")


def test_a_lan_inside_a_larger_advertised_network_is_no_overlap(site: Site) -> None:
    client = site.client()
    client.host.add_address("lan", "198.18.60.1/24")
    with client.running("--route", "198.18.0.0/16"):
        assert "dev lan" in client.host.run("ip route get 198.18.60.9")
        assert_reaches(client.host, HOST4)
    client.host.run("ip address del 198.18.60.1/24 dev lan")


@pytest.mark.parametrize("pool", ["--pool4=198.18.20.1/24", "--pool6=2001:db8:20::1/64"], ids=["IPv4", "IPv6"])
def test_a_server_whose_pool_is_a_network_of_its_host_is_refused(site: Site, pool: str) -> None:
    site.server.stop()
    before = footprint(site.s)
    log = f"serve-overlap-{pool[6]}"
    command = [*COMMAND, "serve", "--port", "4433", pool]
    daemon = site.start(site.s, command, log=log, environment=site.environment("s"))
    assert daemon.wait() == ExitCode.OVERLAP
    assert pool.partition("=")[2].replace("1/", "0/").replace("::0/", "::/") in daemon.text()
    assert "to-h" in daemon.text()
    assert "Choose other pools with --pool4 and --pool6" in daemon.text()
    assert_same_footprint(site.s, before)
