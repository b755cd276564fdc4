"""A server inside an application: it makes its users itself, hands out links, and follows who comes and goes.

    python examples/embedded_server.py STATE_DIRECTORY SECONDS

Without root: clients' packets arrive here as bytes. A real application would be the host they talk to; this one
answers their pings.
"""

import asyncio
import secrets
import sys
from ipaddress import IPv4Interface
from pathlib import Path

import qtunnel
from qtunnel.ip.echo import answer_echo

POOL = IPv4Interface("10.98.0.1/24")


async def serve_packets(server: qtunnel.TunnelServer) -> None:
    """Answer what clients send."""
    while packets := await server.receive():
        server.send([reply for packet in packets if (reply := answer_echo(packet, POOL.ip)) is not None])


async def follow_events(server: qtunnel.TunnelServer) -> None:
    """Say who comes and goes."""
    async for event in server.events():
        if isinstance(event, qtunnel.SessionOpened):
            print(f"{event.user} is here: {', '.join(map(str, event.addresses))}", flush=True)
        elif isinstance(event, qtunnel.SessionClosed):
            print(f"{event.user} left: {event.text}", flush=True)


async def main(state: Path, seconds: float) -> None:
    """Serve for a while."""
    identity = qtunnel.make_identity(state, server_name="app.qtunnel.invalid")
    token = secrets.token_urlsafe(32)
    user = qtunnel.User(name="guest", token_sha256=qtunnel.token_digest(token))
    config = qtunnel.ServerConfig(listen=("127.0.0.1",), port=0, pool4=POOL)
    async with qtunnel.serve(config, identity=identity, users=[user]) as server:
        print(identity.join_link("127.0.0.1", server.port, user.name, token).text(), flush=True)
        tasks = [asyncio.create_task(serve_packets(server)), asyncio.create_task(follow_events(server))]
        await asyncio.sleep(seconds)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
