"""Names to addresses, both families, in the order to try them."""

from __future__ import annotations

import asyncio
import socket
from itertools import chain, zip_longest

from qtunnel.burst import Address
from qtunnel.errors import ConnectionFailedError

__all__ = ["resolve"]


async def resolve(host: str, port: int) -> list[Address]:
    """Return the UDP addresses of a host, the families alternating and IPv6 first (RFC 8305 §4).

    Raises: ConnectionFailedError when the name has no address at all.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConnectionFailedError(f"Cannot find the address of {host!r}: {reason}") from error
    by_family: dict[int, list[Address]] = {socket.AF_INET6: [], socket.AF_INET: []}
    for family, _, _, _, address in found:
        if family in by_family and address not in by_family[family]:
            by_family[family].append(address)  # type: ignore[arg-type]  # typeshed: also AF_BLUETOOTH's shapes
    pairs = zip_longest(by_family[socket.AF_INET6], by_family[socket.AF_INET])
    return [address for address in chain.from_iterable(pairs) if address is not None]
