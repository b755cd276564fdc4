"""The shortest client: a join link on standard input, a tunnel until Ctrl-C. Needs root for the TUN device.

sudo python examples/minimal_client.py < alice.link
"""

import asyncio
import contextlib
import sys

import qtunnel


async def main() -> None:
    """Connect, say so, and stay."""
    config = qtunnel.parse_join_link(sys.stdin.read()).client_config()
    async with qtunnel.connect(config, tun=True) as tunnel:
        addresses = ", ".join(str(address.ip) for address in tunnel.addresses)
        print(f"connected: {addresses}, packets of up to {tunnel.inner_mtu} bytes", flush=True)
        await tunnel.wait_closed()


if __name__ == "__main__":
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(main())
    except qtunnel.QTunnelError as error:
        sys.exit(f"error: {error}")
