"""A smoke test with mqvpn, the C program that does the same job: each as the other's client, one path.

By hand: QTUNNEL_MQVPN=/path/to/mqvpn tests/run tests/interop. Without it everything here is skipped. What is known
not to work: mqvpn's stock client trusts no certificate (its client context never loads the CAs), hence --insecure.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from qtunnel.state.identity import ServerIdentity, certificate_fingerprint, load_or_create_identity
from qtunnel.tunnel.ipv6_check import GIVE_UP_AT
from tests.linux.daemons import Daemon, wait_until
from tests.linux.namespaces import Namespace, Namespaces
from tests.linux.pings import assert_reaches, ping

MQVPN = os.environ.get("QTUNNEL_MQVPN")
SERVER, PORT = "198.18.9.1", 4433
NAME = "vpn.test.invalid"
TOKEN = "shared-key-0123456789"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(MQVPN is None, reason="set QTUNNEL_MQVPN to the mqvpn binary"),
]


@pytest.fixture
def hosts() -> Iterator[tuple[Namespace, Namespace]]:
    with Namespaces() as lab:
        client, server = lab.add("c"), lab.add("s")
        lab.join(client, "e0", server, "e0")
        client.add_address("e0", "198.18.9.2/24")
        server.add_address("e0", f"{SERVER}/24")
        yield client, server


@contextmanager
def running(namespace: Namespace, log: Path, command: str, **environment: str) -> Iterator[Daemon]:
    daemon = Daemon(namespace, shlex.split(command), log=log, environment=environment, life_limit=90)
    try:
        yield daemon
    finally:
        daemon.destroy()


def has_address(namespace: Namespace, text: str) -> bool:
    return text in namespace.run("ip -o address show", check=False)


def wait_for_address(daemon: Daemon, namespace: Namespace, *addresses: str) -> None:
    """Wait until a program has given its namespace these addresses; fails with its output if it ends instead."""

    def are_there() -> bool:
        assert daemon.code is None, daemon.text()
        return all(has_address(namespace, address) for address in addresses)

    wait_until(are_there, f"{addresses} by {daemon.name}")


def outlive_the_ipv6_check() -> None:
    """Let so much time pass that a check without an answer would have taken IPv6 away."""
    time.sleep(GIVE_UP_AT + 1.0)


def mqvpn_server(directory: Path, *pools: str) -> tuple[str, ServerIdentity]:
    """Return the command of an mqvpn server, and the identity it shows."""
    identity = load_or_create_identity(directory / "state", server_name=NAME, now=datetime.now(UTC))
    certificate, key = directory / "server.crt", directory / "server.key"
    certificate.write_bytes(identity.certificate_pem)
    key.write_bytes(identity.private_key_pem)
    command = (
        f"{MQVPN} --mode server --listen {SERVER}:{PORT} {' '.join(pools)} --tun-name mqs --cert {certificate} "
        f"--key {key} --log-level info --user alice:{TOKEN}"
    )
    return command, identity


def profile_for(directory: Path, identity: ServerIdentity, token: str) -> dict[str, str]:
    """Write our client's profile "peer"; return the environment in which it is found."""
    profiles = directory / "profiles"
    profiles.mkdir(mode=0o700)
    profile = profiles / "peer.toml"
    profile.touch(mode=0o600)
    profile.write_text(
        f'server = "{SERVER}"\nport = {PORT}\nserver_name = "{NAME}"\ntoken = "{token}"\n'
        f'fingerprint = "{certificate_fingerprint(identity.certificate_pem)}"\npeer_quirks = "mqvpn"\n'
    )
    return {"QTUNNEL_PROFILE_DIR": str(profiles), "QTUNNEL_RUNTIME_DIR": str(directory / "run")}


def test_our_client_with_an_mqvpn_server(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    client, server = hosts
    mqvpn, identity = mqvpn_server(tmp_path, "--subnet 10.77.0.0/24", "--subnet6 fd77::/112")
    environment = profile_for(tmp_path, identity, TOKEN)
    ours = f"{sys.executable} -m qtunnel connect peer --route 10.77.0.0/24 --route fd77::/112 --route none"
    with running(server, tmp_path / "server.log", mqvpn) as serving:
        wait_for_address(serving, server, "10.77.0.1")
        with running(client, tmp_path / "client.log", ours, **environment) as connected:
            wait_for_address(connected, client, "10.77.0.2", "fd77::2")
            assert_reaches(client, "10.77.0.1", "fd77::1")
            mtu = int(client.run("cat /sys/class/net/qtun0/mtu"))
            assert ping(client, "10.77.0.1", f"-M do -s {mtu - 28}") == 3
            outlive_the_ipv6_check()
            assert has_address(client, "fd77::2"), connected.text()
            assert_reaches(client, "fd77::1")


def test_an_mqvpn_client_with_our_server(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    client, server = hosts
    state = tmp_path / "state"
    environment = {"QTUNNEL_RUNTIME_DIR": str(tmp_path / "run"), "QTUNNEL_CONFIG": ""}
    ours = (
        f"{sys.executable} -m qtunnel serve --state-dir {state} --port {PORT} --public-name {SERVER}:{PORT} "
        "--pool4 10.77.1.1/24 --pool6 fd77:1::1/64 --quirks mqvpn"
    )
    with running(server, tmp_path / "server.log", ours, **environment) as serving:
        serving.wait_for("^join link for ")
        links = state / "join"
        token = next(links.glob("*.link")).read_text().strip().partition("#")[2]
        mqvpn = (
            f"{MQVPN} --mode client --server {SERVER}:{PORT} --tun-name mqc --log-level info --auth-key {token} "
            "--insecure --no-manage-routes --no-reconnect"
        )
        with running(client, tmp_path / "client.log", mqvpn) as connected:
            wait_for_address(connected, client, "10.77.1.2", "fd77:1::2")
            client.run("ip route replace 10.77.1.0/24 dev mqc")
            client.run("ip -6 route replace fd77:1::/64 dev mqc")
            assert_reaches(client, "10.77.1.1", "fd77:1::1")
            assert_reaches(server, "10.77.1.2", "fd77:1::2")
            mtu = int(client.run("cat /sys/class/net/mqc/mtu"))
            assert ping(client, "10.77.1.1", f"-M do -s {mtu - 28}") == 3
            outlive_the_ipv6_check()
            assert_reaches(client, "fd77:1::1")


def test_a_wrong_key_is_refused_clearly_by_an_mqvpn_server(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    client, server = hosts
    mqvpn, identity = mqvpn_server(tmp_path, "--subnet 10.77.0.0/24")
    environment = profile_for(tmp_path, identity, "not-the-key-0123456789")
    ours = f"{sys.executable} -m qtunnel connect peer"
    with running(server, tmp_path / "server.log", mqvpn) as serving:
        wait_for_address(serving, server, "10.77.0.1")
        with running(client, tmp_path / "client.log", ours, **environment) as connecting:
            assert connecting.wait() == 8, connecting.text()
            assert "refused the token" in connecting.text()
