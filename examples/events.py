"""Follow a tunnel's life as typed events, the outages too. No root: packets are not carried anywhere.

python examples/events.py < alice.link
"""

import asyncio
import contextlib
import sys

import qtunnel


async def main() -> None:
    """Print each event as it comes; the iteration ends with the tunnel."""
    config = qtunnel.parse_join_link(sys.stdin.read()).client_config()
    async with qtunnel.connect(config, wait=False) as tunnel:
        async for event in tunnel.events():
            match event:
                case qtunnel.Connecting():
                    print(f"attempt {event.attempt}: trying {event.remote}", flush=True)
                case qtunnel.Connected():
                    print(f"up, {event.inner_mtu} bytes: {', '.join(map(str, event.addresses))}", flush=True)
                case qtunnel.RoutesChanged():
                    print(f"the server routes {', '.join(map(str, event.routes))}", flush=True)
                case qtunnel.InnerMtuChanged():
                    print(f"packets of up to {event.new} bytes now, {event.old} before", flush=True)
                case qtunnel.Disconnected():
                    again = "" if event.retry_in is None else f", again in {event.retry_in:.1f} s"
                    print(f"down: {event.text}{again}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
