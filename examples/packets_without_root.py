"""A server and a client in one process, without root: inner packets go in and come out as bytes.

The client pings the server's inner address; the application behind the server answers, as any program could.
"""

import asyncio
import secrets
import tempfile
from ipaddress import IPv6Address, IPv6Interface
from pathlib import Path

import qtunnel
from qtunnel.ip.echo import answer_echo, build_echo_request6, parse_echo_reply

POOL = IPv6Interface("fd00:99::1/64")


async def answer_pings(server: qtunnel.TunnelServer) -> None:
    """Be the host behind the server."""
    while packets := await server.receive():
        replies = [answer_echo(packet, POOL.ip) for packet in packets]
        server.send([reply for reply in replies if reply is not None])


async def main() -> None:
    """Start both ends on the loopback interface and send three pings through the tunnel."""
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as state:
        identity = qtunnel.make_identity(Path(state), server_name="example.qtunnel.invalid")
    server_config = qtunnel.ServerConfig(listen=("127.0.0.1",), port=0, pool6=POOL)
    user = qtunnel.User(name="alice", token_sha256=qtunnel.token_digest(token))
    async with qtunnel.serve(server_config, identity=identity, users=[user]) as server:
        answering = asyncio.create_task(answer_pings(server))
        client_config = qtunnel.ClientConfig(
            server="127.0.0.1",
            port=server.port,
            server_name="example.qtunnel.invalid",
            fingerprint=identity.fingerprint,
            token=token,
        )
        async with qtunnel.connect(client_config) as tunnel:
            ours = IPv6Address(tunnel.addresses[0].ip)
            print(f"connected as {ours}, packets of up to {tunnel.inner_mtu} bytes")
            for sequence in (1, 2, 3):
                tunnel.send([build_echo_request6(ours, POOL.ip, 7, sequence, data_length=56)])
                for packet in await tunnel.receive():
                    reply = parse_echo_reply(packet)
                    if reply is not None:
                        print(f"{POOL.ip} answered ping {reply.sequence}")
    await answering


if __name__ == "__main__":
    asyncio.run(main())
