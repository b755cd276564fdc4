"""Measuring where nobody answers; the rest needs a server (tests/library/test_measure_mtu.py)."""

from __future__ import annotations

import socket

import pytest

import qtunnel
from qtunnel.errors import ConnectionFailedError


@pytest.fixture
def unused_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_where_nobody_answers_it_says_so(unused_port: int) -> None:
    with pytest.raises(ConnectionFailedError, match=f"no QUIC connection to 127.0.0.1:{unused_port}"):
        await qtunnel.measure_path_mtu("127.0.0.1", unused_port, patience=0.5)
    with pytest.raises(ConnectionFailedError, match="has no IPv6 address"):
        await qtunnel.measure_path_mtu("127.0.0.1", unused_port, version=6)
