"""Counts handshakes: python -m netlab.tunnels.qtunnel_handshakes COUNT, with join links on standard input.

Each link's user connects and closes again and again, without a TUN device; all links at the same time. The number
of tunnels that came up, a second, is printed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace

import qtunnel


async def main(count: int, links: list[str]) -> None:
    """Share count connections among the links."""
    left = iter(range(count))

    async def again_and_again(link: str) -> None:
        config = replace(qtunnel.parse_join_link(link).client_config(), reconnect=False)
        for _ in left:
            async with qtunnel.connect(config):
                pass

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for link in links:
            group.create_task(again_and_again(link))
    print(count / (time.monotonic() - began))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.stdin.read().split()))
