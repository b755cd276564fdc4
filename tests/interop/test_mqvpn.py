"""A smoke test with mqvpn, the C program that does the same job: each as the other's client, one path.

By hand: QTUNNEL_MQVPN=/path/to/mqvpn tests/run tests/interop. Without it everything here is skipped. What is known
not to work: mqvpn's stock client trusts no certificate (its client context never loads the CAs), hence --insecure.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from qtunnel.state.identity import certificate_fingerprint, load_or_create_identity
from tests.linux.namespaces import Namespace, Namespaces

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
def running(
    namespace: Namespace, log: Path, *command: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["timeout", "-k", "3", "60", "ip", "netns", "exec", namespace.name, *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=15)


def wait_for(what: Callable[[], bool], log: Path, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


def pings(namespace: Namespace, *addresses: str) -> None:
    for address in addresses:
        out = namespace.run(f"ping -n -c 3 -i 0.2 -W 2 {address}", check=False)
        assert " 0% packet loss" in out, f"{address}: {out}"


def has_address(namespace: Namespace, text: str) -> bool:
    return text in namespace.run("ip -o address show", check=False)


def test_our_client_with_an_mqvpn_server(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    client, server = hosts
    identity = load_or_create_identity(tmp_path / "state", server_name=NAME, now=datetime.now(UTC))
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    certificate.write_bytes(identity.certificate_pem)
    key.write_bytes(identity.private_key_pem)
    profiles = tmp_path / "profiles"
    profiles.mkdir(mode=0o700)
    profile = profiles / "peer.toml"
    profile.touch(mode=0o600)
    profile.write_text(
        f'server = "{SERVER}"\nport = {PORT}\nserver_name = "{NAME}"\ntoken = "{TOKEN}"\n'
        f'fingerprint = "{certificate_fingerprint(identity.certificate_pem)}"\npeer_quirks = "mqvpn"\n'
    )
    mqvpn = (
        f"{MQVPN} --mode server --listen {SERVER}:{PORT} --subnet 10.77.0.0/24 --subnet6 fd77::/112 "
        f"--tun-name mqs --cert {certificate} --key {key} --log-level info --user alice:{TOKEN}"
    )
    ours = f"{sys.executable} -m qtunnel connect peer --route 10.77.0.0/24 --route fd77::/112 --route none"
    server_log, client_log = tmp_path / "server.log", tmp_path / "client.log"
    with running(server, server_log, *shlex.split(mqvpn)):
        wait_for(lambda: has_address(server, "10.77.0.1"), server_log)
        environment = {"QTUNNEL_PROFILE_DIR": str(profiles), "QTUNNEL_RUNTIME_DIR": str(tmp_path / "run")}
        with running(client, client_log, *shlex.split(ours), **environment):
            wait_for(lambda: has_address(client, "10.77.0.2"), client_log)
            wait_for(lambda: has_address(client, "fd77::2"), client_log)
            pings(client, "10.77.0.1", "fd77::1")
            mtu = int(client.run("cat /sys/class/net/qtun0/mtu"))
            client.run(f"ping -n -c 2 -W 2 -M do -s {mtu - 28} 10.77.0.1")
            time.sleep(5)  # the IPv6 check's verdict is in by now
            assert has_address(client, "fd77::2"), client_log.read_text()


def test_an_mqvpn_client_with_our_server(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    client, server = hosts
    state = tmp_path / "state"
    environment = {"QTUNNEL_RUNTIME_DIR": str(tmp_path / "run"), "QTUNNEL_CONFIG": ""}
    ours = (
        f"{sys.executable} -m qtunnel serve --state-dir {state} --port {PORT} --public-name {SERVER}:{PORT} "
        "--pool4 10.77.1.1/24 --pool6 fd77:1::1/64 --quirks mqvpn"
    )
    server_log, client_log = tmp_path / "server.log", tmp_path / "client.log"
    with running(server, server_log, *shlex.split(ours), **environment):
        links = state / "join"
        wait_for(lambda: any(links.glob("*.link")), server_log)
        token = next(links.glob("*.link")).read_text().strip().partition("#")[2]
        mqvpn = (
            f"{MQVPN} --mode client --server {SERVER}:{PORT} --tun-name mqc --log-level info --auth-key {token} "
            "--insecure --no-manage-routes --no-reconnect"
        )
        with running(client, client_log, *shlex.split(mqvpn)):
            wait_for(lambda: has_address(client, "10.77.1.2"), client_log)
            client.run("ip route replace 10.77.1.0/24 dev mqc")
            client.run("ip -6 route replace fd77:1::/64 dev mqc")
            pings(client, "10.77.1.1", "fd77:1::1")
            pings(server, "10.77.1.2", "fd77:1::2")
            mtu = int(client.run("cat /sys/class/net/mqc/mtu"))
            client.run(f"ping -n -c 2 -W 2 -M do -s {mtu - 28} 10.77.1.1")
            time.sleep(5)
            pings(client, "fd77:1::1")


def test_a_wrong_key_is_refused_clearly_by_an_mqvpn_server(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    client, server = hosts
    identity = load_or_create_identity(tmp_path / "state", server_name=NAME, now=datetime.now(UTC))
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    certificate.write_bytes(identity.certificate_pem)
    key.write_bytes(identity.private_key_pem)
    profiles = tmp_path / "profiles"
    profiles.mkdir(mode=0o700)
    profile = profiles / "peer.toml"
    profile.touch(mode=0o600)
    profile.write_text(
        f'server = "{SERVER}"\nport = {PORT}\nserver_name = "{NAME}"\ntoken = "not-the-key-0123456789"\n'
        f'fingerprint = "{certificate_fingerprint(identity.certificate_pem)}"\npeer_quirks = "mqvpn"\n'
    )
    mqvpn = (
        f"{MQVPN} --mode server --listen {SERVER}:{PORT} --subnet 10.77.0.0/24 --tun-name mqs "
        f"--cert {certificate} --key {key} --log-level info --user alice:{TOKEN}"
    )
    server_log = tmp_path / "server.log"
    with running(server, server_log, *shlex.split(mqvpn)):
        wait_for(lambda: has_address(server, "10.77.0.1"), server_log)
        done = subprocess.run(
            ["ip", "netns", "exec", client.name, sys.executable, "-m", "qtunnel", "connect", "peer"],
            env={
                **os.environ,
                "QTUNNEL_PROFILE_DIR": str(profiles),
                "QTUNNEL_RUNTIME_DIR": str(tmp_path / "run"),
            },
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 8, done
    assert "refused the token" in done.stdout + done.stderr
