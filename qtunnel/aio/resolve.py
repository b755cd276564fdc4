"""Names to addresses, both families, in the order to try them."""

from __future__ import annotations

import asyncio
import logging
import socket
from itertools import chain, zip_longest
from typing import Final

from qtunnel.burst import Address
from qtunnel.errors import ConnectionFailedError

__all__ = ["ServerName"]

logger = logging.getLogger(__name__)

PATIENCE: Final = 2.0
"""Seconds to wait for a name whose last addresses are known."""


class ServerName:
    """A server's name and port; it is looked up anew for each attempt, as it may have moved.

    Where everything goes through the tunnel, so does the question to the name server, and while the tunnel is down
    it has no answer: then the last addresses are tried again.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._known: list[Address] = []

    async def addresses(self) -> list[Address]:
        """Return the UDP addresses, the families alternating and IPv6 first (RFC 8305 §4).

        Raises: ConnectionFailedError when the name has no address and never had one.
        """
        try:
            async with asyncio.timeout(PATIENCE if self._known else None):
                self._known = await self._look_up()
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            if not self._known:
                raise ConnectionFailedError(f"cannot find the address of {self._host!r}: {reason}") from error
            logger.info("cannot find the address of %s (%s): trying where it was", self._host, reason)
        return list(self._known)

    async def _look_up(self) -> list[Address]:
        found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
        by_family: dict[int, list[Address]] = {socket.AF_INET6: [], socket.AF_INET: []}
        for family, _, _, _, address in found:
            if family in by_family and address not in by_family[family]:
                by_family[family].append(address)  # type: ignore[arg-type]  # typeshed: also AF_BLUETOOTH's
        pairs = zip_longest(by_family[socket.AF_INET6], by_family[socket.AF_INET])
        addresses = [address for address in chain.from_iterable(pairs) if address is not None]
        if not addresses:
            raise OSError(None, "it has none")
        return addresses
