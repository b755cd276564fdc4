"""Two clients of one server, in both families, and what becomes of one whose user is removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qtunnel.cli.exit_codes import ExitCode
from tests.linux.pings import assert_reaches, ping
from tests.linux.site import HOST4, HOST6, INNER4, INNER6, PORT, Site
from tests.linux.sniffer import UDP, Sniffer

pytestmark = pytest.mark.root


@pytest.fixture
def site() -> Iterator[Site]:
    with Site.open(clients=("c1", "c2")) as site:
        site.start_server()
        site.client("c1").up()
        site.client("c2").up()
        yield site


def test_two_clients_and_the_end_of_one_whose_user_is_removed(site: Site) -> None:
    first, second = site.client("c1"), site.client("c2")
    for client in (first, second):
        assert_reaches(client.host, INNER4, INNER6, HOST4, HOST6)
        assert_reaches(site.h, client.address(4), client.address(6))
    assert first.address(4) != second.address(4)
    assert {session["user"] for session in site.server_status()["sessions"]} == {"c1", "c2"}

    site.qtunnel(site.s, ["user", "remove", "c1"], owner="s")
    assert first.daemon.wait() == ExitCode.REFUSED
    assert "refused the token" in first.daemon.text()
    assert [session["user"] for session in site.server_status()["sessions"]] == ["c2"]
    assert_reaches(second.host, HOST4, HOST6)
    assert second.daemon.text().count("connected to") == 1

    with Sniffer(first.host, "eth0") as wire:
        assert_reaches(second.host, HOST4)
        tunnel = [each for each in wire.packets(settle=1.5) if each.protocol == UDP and PORT in each.ports]
    assert tunnel == []
    assert ping(first.host, HOST4, count=1, patience=1) == 0
