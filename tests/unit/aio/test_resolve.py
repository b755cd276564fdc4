from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from qtunnel.aio.resolve import ServerName
from qtunnel.errors import ConnectionFailedError


def answer(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        found = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            where = (address, 443, 0, 0) if ":" in address else (address, 443)
            found.append((family, socket.SOCK_DGRAM, 17, "", where))
        return found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_families_alternate_and_ipv6_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1")
    hosts = [address[0] for address in await ServerName("example", 443).addresses()]
    assert hosts == ["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"]


async def test_an_address_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "192.0.2.1", "192.0.2.1")
    assert await ServerName("example", 443).addresses() == [("192.0.2.1", 443)]


async def test_a_name_without_address_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fail)
    with pytest.raises(ConnectionFailedError, match=r"^cannot find .*'vpn\.example'.*Name or service not known"):
        await ServerName("vpn.example", 443).addresses()


async def test_a_name_that_cannot_be_looked_up_any_more_is_tried_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = ServerName("vpn.example", 443)
    answer(monkeypatch, "192.0.2.1")
    assert await name.addresses() == [("192.0.2.1", 443)]

    async def fail(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fail)
    assert await name.addresses() == [("192.0.2.1", 443)]


async def test_an_address_needs_no_name_server() -> None:
    assert await ServerName("192.0.2.9", 4433).addresses() == [("192.0.2.9", 4433)]
