"""A server on the loopback interface and what its clients need; no root, no TUN."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Any

import pytest

import qtunnel

SERVER_NAME = "test.qtunnel.invalid"
PATIENCE = 30
"""Seconds a test waits for what takes a moment; long, as a busy machine may stop for a while."""
POOL4 = IPv4Interface("10.97.0.1/24")
POOL6 = IPv6Interface("fd00:97::1/64")


@dataclass
class Site:
    """One server's identity and users, and configurations that fit it."""

    identity: qtunnel.ServerIdentity
    tokens: dict[str, str]
    server_config: qtunnel.ServerConfig
    quic: qtunnel.QuicConfig

    def users(self) -> list[qtunnel.User]:
        return [
            qtunnel.User(name=name, token_sha256=qtunnel.token_digest(token))
            for name, token in self.tokens.items()
        ]

    def client(self, port: int, user: str = "alice", **settings: Any) -> qtunnel.ClientConfig:
        config = qtunnel.ClientConfig(
            server="127.0.0.1",
            port=port,
            server_name=SERVER_NAME,
            fingerprint=self.identity.fingerprint,
            token=self.tokens.get(user, "nobody-knows-this-token"),
            reconnect_min=0.05,
            reconnect_max=0.2,
            quic=self.quic,
        )
        return replace(config, **settings)

    @asynccontextmanager
    async def serve(self, port: int = 0, **settings: Any) -> AsyncIterator[qtunnel.TunnelServer]:
        config = replace(self.server_config, port=port, **settings)
        async with qtunnel.serve(config, identity=self.identity, users=self.users()) as server:
            yield server


Serve = Callable[..., AbstractAsyncContextManager[qtunnel.TunnelServer]]


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> qtunnel.ServerIdentity:
    state: Path = tmp_path_factory.mktemp("identity") / "state"
    return qtunnel.make_identity(state, server_name=SERVER_NAME)


@pytest.fixture
def site(identity: qtunnel.ServerIdentity) -> Site:
    # The loopback interface's MTU is 65536; a path of 1500 is what the rest of the world looks like.
    quic = qtunnel.QuicConfig(path_mtu=1500)
    tokens = {name: secrets.token_urlsafe(32) for name in ("alice", "bob")}
    config = qtunnel.ServerConfig(listen=("127.0.0.1",), port=0, pool4=POOL4, pool6=POOL6, quic=quic)
    return Site(identity, tokens, config, quic)
