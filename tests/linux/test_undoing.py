"""What a tunnel changes on its host is undone: at its end, when its start fails, and after it was killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtunnel.cli.exit_codes import ExitCode
from tests.linux.footprint import assert_same_footprint, footprint
from tests.linux.site import COMMAND, Site

pytestmark = pytest.mark.root

SERVER = ("--masquerade",)
CLIENT = ("--route", "default", "--masquerade", "--advertise", "198.18.50.0/24")
FORWARDING = r"[/_]forwarding:|ip_forward:|accept_redirects:|accept_ra:|anycast .* proto kernel"
"""Of a killed run forwarding is left, and what comes with it: nobody knows afterwards who switched it on."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().join(site.add_user("c1"))
        site.server.stop()
        yield site


@pytest.fixture
def server(site: Site) -> Iterator[None]:
    site.start_server()
    yield
    site.server.destroy()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_server_leaves_its_host_as_it_was(site: Site, number: signal.Signals) -> None:
    before = footprint(site.s)
    site.start_server(*SERVER)
    with site.client().running():
        assert all(text != before[key] for key, text in footprint(site.s).items() if "rule" not in key)
        assert site.server.stop(number) == ExitCode.OK
    assert_same_footprint(site.s, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_client_leaves_its_host_as_it_was(site: Site, server: None, number: signal.Signals) -> None:
    host = site.client().host
    before = footprint(host)
    with site.client().running(*CLIENT) as client:
        assert all(text != before[key] for key, text in footprint(host).items())
        assert client.daemon.stop(number) == ExitCode.OK
    assert_same_footprint(host, before)


def test_a_client_that_waits_for_its_server_leaves_its_host_as_it_was(site: Site) -> None:
    client = site.client()
    before = footprint(client.host)
    client.start(*CLIENT, "--handshake-timeout", "0.5")
    client.daemon.wait_for("trying again in")
    assert client.daemon.stop() == ExitCode.OK
    assert_same_footprint(client.host, before)


def test_a_start_that_fails_half_way_is_undone(site: Site, server: None, tmp_path: Path) -> None:
    broken = tmp_path / "nft"
    broken.write_text("#!/bin/sh\necho 'Error: Operation not supported' >&2\nexit 1\n")
    broken.chmod(0o700)
    client = site.client()
    before = footprint(client.host)
    path = f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    failing = site.start(
        client.host,
        [*COMMAND, "connect", "c1", *CLIENT],
        log="connect-c1",
        environment={**site.environment("c1"), "PATH": path},
    )
    assert failing.wait() == ExitCode.SYSTEM
    assert "nft refused our table (Error: Operation not supported)" in failing.text()
    assert_same_footprint(client.host, before)


def test_a_client_that_is_refused_leaves_its_host_as_it_was(site: Site, server: None) -> None:
    client = site.client()
    before = footprint(client.host)
    with site.client().running(*CLIENT) as client:
        site.qtunnel(site.s, ["user", "link", "c1"], owner="s")
        assert client.daemon.wait() == ExitCode.REFUSED
    assert_same_footprint(client.host, before)
    client.join(site.add_user("c1"))


def test_what_a_killed_client_has_left_is_removed_by_the_next_one(site: Site, server: None) -> None:
    client = site.client()
    before = footprint(client.host)
    with client.running(*CLIENT):
        client.daemon.stop(signal.SIGKILL)
    left = footprint(client.host)
    assert left["ip -details rule"] != before["ip -details rule"]
    assert left["nft list ruleset"] != ""
    with client.running():
        client.daemon.stop()
    assert_same_footprint(client.host, before, except_for=FORWARDING)
    reset_forwarding(site)


def test_what_a_killed_server_has_left_is_removed_by_the_next_one(site: Site) -> None:
    before = footprint(site.s)
    site.start_server(*SERVER)
    site.server.stop(signal.SIGKILL)
    assert footprint(site.s)["nft list ruleset"] != ""
    site.start_server()
    site.server.stop()
    assert_same_footprint(site.s, before, except_for=FORWARDING)
    reset_forwarding(site)


def reset_forwarding(site: Site) -> None:
    for host in (site.s, site.client().host):
        host.sysctl("net/ipv4/ip_forward", "0")
        host.sysctl("net/ipv6/conf/all/forwarding", "0")
