"""The path MTU to a server on loopback, measured through its whole interface of 65,536 bytes and less."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

import qtunnel
from qtunnel.cli.main import run_command
from tests.library.conftest import Site


class Deaf(QuicConnectionProtocol):
    """A server that does nothing with what it is told."""

    def quic_event_received(self, event: QuicEvent) -> None:
        """Ignore it."""


@pytest.fixture
def unused_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_the_peers_limit_is_found_and_named(site: Site) -> None:
    async with site.serve() as server:
        (found,) = await qtunnel.measure_path_mtu("127.0.0.1", server.port)
    assert (found.version, found.mtu, found.limited_by, found.is_complete) == (4, 1500, "peer", True)
    assert found.probes >= 1
    assert found.steps[-1].mtu == 1500
    assert found.round_trips < 10


async def test_a_plain_aioquic_server_is_measured_too(site: Site, unused_port: int) -> None:
    """It knows neither datagrams nor our connection ids."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    configuration.certificate = load_pem_x509_certificate(site.identity.certificate_pem)
    configuration.private_key = load_pem_private_key(site.identity.private_key_pem, None)
    server = await serve("127.0.0.1", unused_port, configuration=configuration, create_protocol=Deaf)
    try:
        (found,) = await qtunnel.measure_path_mtu("127.0.0.1", unused_port)
    finally:
        server.close()
    assert found.is_complete
    assert (found.mtu, found.limited_by) == (65535, "interface")


async def test_the_command_tells_a_person_and_a_program(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    async with site.serve() as server:
        target = f"127.0.0.1:{server.port}"
        assert await asyncio.to_thread(run_command, ["mtu", target]) == 0
        out = capsys.readouterr().out
        assert f"to {target}, IPv4: path MTU 1500 (limited by the peer, which takes no more)" in out
        assert await asyncio.to_thread(run_command, ["mtu", target, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["mtu"] == 1500
        assert await asyncio.to_thread(run_command, ["mtu", target, "--watch", "--seconds", "1"]) == 0
