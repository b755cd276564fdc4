"""20 MB by TCP through the tunnel, each way, in both families, and what arrives is what was sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.linux.namespaces import Namespace
from tests.linux.site import Site

pytestmark = pytest.mark.root

RECEIVE = """
import hashlib, socket, sys
with socket.create_server((sys.argv[1], 5300), family=int(sys.argv[2])) as listening:
    print("listening", flush=True)
    connection, _ = listening.accept()
    digest, size = hashlib.sha256(), 0
    while data := connection.recv(1 << 20):
        digest.update(data)
        size += len(data)
    print("received", size, digest.hexdigest(), flush=True)
"""
SEND = """
import hashlib, os, socket, sys
content = os.urandom(20_000_000)
with socket.create_connection((sys.argv[1], 5300), timeout=20) as connection:
    connection.settimeout(None)
    connection.sendall(content)
print(hashlib.sha256(content).hexdigest())
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site.open() as site:
        site.start_server()
        site.client().up()
        yield site


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_20_mb_arrive_unchanged(site: Site, direction: str, version: int) -> None:
    client = site.client()
    if direction == "up":
        _transfer(site, client.host, site.h, "198.18.20.2" if version == 4 else "2001:db8:20::2", version)
    else:
        _transfer(site, site.h, client.host, client.address(version), version)
    assert client.daemon.text().count("connected to") == 1
    for status in (client.status(), site.server_status()):
        assert status["tun_offload"]["bad_frames"] == status["tun_offload"]["offload_fallbacks"] == 0
        assert status["tun_offload"]["segments_read"] >= status["tun_offload"]["super_packets_read"]


def _transfer(site: Site, sender: Namespace, receiver: Namespace, address: str, version: int) -> None:
    family = {4: 2, 6: 10}[version]
    receiving = site.start(
        receiver, [sys.executable, "-c", RECEIVE, address, str(family)], log=f"receive-{len(site.daemons)}"
    )
    receiving.wait_for("^listening")
    digest = sender.python(SEND, address, timeout=60).strip()
    assert receiving.wait() == 0
    assert f"received 20000000 {digest}" in receiving.text()
