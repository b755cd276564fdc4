"""The library: connect() and serve(), as async context managers.

async with qtunnel.connect(config) as tunnel:            # packets as bytes, no root
    tunnel.send([packet])
    packets = await tunnel.receive()

async with qtunnel.connect(config, tun=True) as tunnel:  # a TUN device; root or CAP_NET_ADMIN
    await tunnel.wait_closed()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from qtunnel.aio.client import TunnelClient
from qtunnel.aio.server import TunnelServer
from qtunnel.config import ClientConfig, ServerConfig, User
from qtunnel.state.identity import ServerIdentity

__all__ = ["Leases", "TunnelClient", "TunnelServer", "connect", "serve"]


@runtime_checkable
class Leases(Protocol):
    """Keeps users' host numbers across restarts: a mapping that can be saved, such as state.leases.LeaseStore."""

    def keys(self) -> Iterable[str]: ...  # noqa: D102 - a mapping's
    def __getitem__(self, user: str) -> int: ...
    def save(self, leases: Mapping[str, int]) -> None: ...  # noqa: D102


@asynccontextmanager
async def connect(config: ClientConfig, *, tun: bool = False, wait: bool = True) -> AsyncIterator[TunnelClient]:
    """Keep one tunnel up within `async with`, reconnecting as config says.

    tun: set up a TUN device, addresses and routes on this host; otherwise packets are the caller's, as bytes.
    wait: enter the block only once the tunnel is up; with False at once, to see the events of the first attempt.

    Raises:
        AuthenticationError: the server refused the token.
        ServerNotVerifiedError: the server's certificate is not the expected one.
        NetworkOverlapError: the tunnel's networks are in use on this host.
        SystemSetupError: no TUN, no permission.
        ConnectionFailedError: with config.reconnect off, or when trying again cannot help.
    """
    client = TunnelClient(config, use_tun=tun)
    await client.start()
    try:
        if wait:
            await client.wait_connected()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def serve(
    config: ServerConfig,
    *,
    identity: ServerIdentity,
    users: Iterable[User],
    leases: Leases | None = None,
    tun: bool = False,
) -> AsyncIterator[TunnelServer]:
    """Serve within `async with`.

    identity: certificate, key and secret (qtunnel.state.identity). leases: who has which address, from and for
    other runs. tun: a TUN device, forwarding and masquerade on this host; otherwise packets are the caller's.

    Raises:
        SystemSetupError: a port is taken, no TUN, no permission.
        NetworkOverlapError: a pool is in use on this host.
    """
    server = TunnelServer(
        config,
        identity=identity,
        users=users,
        leases=None if leases is None else {user: leases[user] for user in leases.keys()},  # noqa: SIM118
        save_leases=None if leases is None else leases.save,
        use_tun=tun,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.close()
