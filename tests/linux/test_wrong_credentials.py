"""A token that is not valid (any more), a server that is not the right one: one clear message, one attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from qtunnel.cli.exit_codes import ExitCode
from tests.linux.daemons import wait_until
from tests.linux.site import PORT, Site
from tests.linux.sniffer import UDP, Sniffer

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().join(site.add_user("c1"))
        yield site


def test_a_wrong_token_ends_the_client_after_one_attempt(site: Site) -> None:
    client = site.client()
    profile = client.profile.read_text()
    client.profile.write_text(profile.replace(client.token, client.token[::-1]))
    with Sniffer(client.host, "eth0") as wire:
        daemon = client.start()
        assert daemon.wait() == ExitCode.REFUSED
        outer = [each for each in wire.packets(settle=1.0) if each.protocol == UDP and PORT in each.ports]
    client.profile.write_text(profile)
    assert "the server refused the token (status 401). Ask its operator for a new join link" in daemon.text()
    assert daemon.text().count("connecting to") == 1
    assert len({each.ports[0] for each in outer if each.is_outgoing}) == 1  # one attempt, from one socket
    assert len(outer) < 40
    site.server.wait_for(r"refused a request from 198\.18\.1\.2:\d+ \(401\): unknown token")


def test_a_server_with_another_certificate_never_sees_the_token(site: Site) -> None:
    client = site.client()
    profile = client.profile.read_text()
    changed = re.sub(r'fingerprint = "[0-9a-f]{64}"', f'fingerprint = "{"0" * 64}"', profile)
    assert changed != profile
    client.profile.write_text(changed)
    refused = site.server.text().count("refused a request")
    daemon = client.start()
    assert daemon.wait() == ExitCode.NOT_VERIFIED
    client.profile.write_text(profile)
    assert "could not be verified" in daemon.text()
    assert daemon.text().count("connecting to") == 1
    # It has seen no request at all.
    wait_until(lambda: site.server_status()["connections"] == 0, "the end of the connection")
    assert site.server.text().count("refused a request") == refused
    assert site.server_status()["sessions"] == []


def test_an_old_link_does_not_work_once_there_is_a_new_one(site: Site) -> None:
    with site.client().running() as client:
        site.qtunnel(site.s, ["user", "link", "c1"], owner="s")
        assert client.daemon.wait() == ExitCode.REFUSED
    client.join(site.add_user("c1"))
    with client.running():
        assert client.status()["state"] == "connected"
