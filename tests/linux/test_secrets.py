"""Who can read what: control sockets, profiles and links; and the token is in no process list and no log."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtunnel.cli.exit_codes import ExitCode
from tests.linux.pings import assert_reaches
from tests.linux.site import HOST4, INNER4, Site

pytestmark = pytest.mark.root

LOUD = ("--log-level", "debug")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server(*LOUD, "--log-file", str(site.directory / "server-file.log"))
        site.client().up(*LOUD)
        yield site


def test_control_sockets_are_for_their_owner_alone(site: Site) -> None:
    for socket in (
        site.directory / "s" / "server" / "control.sock",
        site.directory / "c1" / "c1" / "control.sock",
    ):
        assert socket.is_socket()
        assert (mode(socket), mode(socket.parent)) == (0o600, 0o700)
        assert socket.stat().st_uid == socket.parent.stat().st_uid == os.geteuid()


def test_status_shows_addresses_sizes_and_peers_of_both_ends(site: Site) -> None:
    client = site.client()
    assert_reaches(client.host, HOST4)
    shown = site.qtunnel(client.host, ["status"], owner="c1").stdout
    for fact in ("c1: client, connected", client.address(4), client.address(6), "inner MTU", "received", "sent"):
        assert fact in shown
    shown = site.qtunnel(site.s, ["status"], owner="s").stdout
    for fact in ("server", INNER4, "c1", client.address(4), "198.18.1.2"):
        assert fact in shown


def test_links_profiles_and_state_are_for_their_owner_alone(site: Site) -> None:
    files = [*site.state.rglob("*"), *site.client().profile.parent.rglob("*"), site.directory / "server-file.log"]
    assert site.client().profile in files
    assert site.state / "join" / "c1.link" in files
    assert {path: oct(mode(path)) for path in files if mode(path) & 0o077} == {}


def test_the_token_is_in_no_process_list_and_in_no_log_at_debug_level(site: Site) -> None:
    client = site.client()
    # Also through an outage, a refusal and an end: everything that says why.
    site.server.stop()
    client.daemon.wait_for("^no tunnel")
    site.start_server(*LOUD, "--log-file", str(site.directory / "server-file.log"))
    client.wait_up(count=2)
    token = client.token
    assert len(token) >= 40
    shown = {path: _read(path) for name in ("cmdline", "environ") for path in Path("/proc").glob(f"[0-9]*/{name}")}
    assert any(b"qtunnel" in text for text in shown.values())
    assert [path for path, text in shown.items() if token.encode() in text] == []
    client.daemon.stop()
    site.server.stop()
    logs = sorted(site.directory.glob("*.log"))
    assert {log.stem for log in logs} >= {"serve", "connect-c1", "server-file"}
    assert "DEBUG qtunnel" in (site.directory / "server-file.log").read_text()
    assert "HANDSHAKE -> WAITING_FOR_SETTINGS" in (site.directory / "connect-c1.log").read_text()
    assert [log.name for log in logs if token in log.read_text(errors="replace")] == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_profile_that_others_can_read_is_not_used(site: Site) -> None:
    client = site.client()
    client.profile.chmod(0o644)
    daemon = client.start()
    assert daemon.wait() == ExitCode.STATE
    assert f"chmod 600 {client.profile}" in daemon.text()
    client.profile.chmod(0o600)
