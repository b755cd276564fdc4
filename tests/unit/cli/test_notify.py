"""sd_notify(3): one datagram, or nothing."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from qtunnel.cli.notify import notify_service_manager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_service_manager_is_told(monkeypatch: pytest.MonkeyPatch, is_abstract: bool) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="qt") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        path = str(Path(directory) / "notify")
        manager.bind(f"\0{path}" if is_abstract else path)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{path}" if is_abstract else path)
        notify_service_manager("READY=1")
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("value", ["", "relative", "/no/such/socket"])
def test_nobody_to_tell_is_no_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", value)
    notify_service_manager("READY=1")
