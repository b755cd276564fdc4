"""Leases survive a restart; damage costs addresses, never the server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from qtunnel.errors import StateError
from qtunnel.state import leases
from qtunnel.state.leases import LeaseStore


def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    store = LeaseStore(tmp_path)
    assert dict(store) == {}
    store.save({"alice": 2, "bob": 7})
    assert dict(LeaseStore(tmp_path)) == {"alice": 2, "bob": 7}
    store.save({"bob": 7})
    assert dict(LeaseStore(tmp_path)) == {"bob": 7}
    assert len(store) == 1


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    store = LeaseStore(tmp_path)
    store.save({})
    assert list(tmp_path.iterdir()) == []
    store.save({"alice": 2})
    before = (tmp_path / "leases.json").stat().st_ino
    store.save({"alice": 2})
    assert (tmp_path / "leases.json").stat().st_ino == before


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"alice": "2"}', b'{"alice": 1.5}', b"[" * 9999])
def test_a_damaged_file_is_reported_and_ignored(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "leases.json"
    path.write_bytes(content)
    path.chmod(0o600)
    assert dict(LeaseStore(tmp_path)) == {}
    assert "users get new addresses" in caplog.text


def test_a_write_that_fails_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StateError("the disk is full")

    monkeypatch.setattr(leases, "write_private", fail)
    store = LeaseStore(tmp_path)
    with caplog.at_level(logging.WARNING):
        store.save({"alice": 2})
    assert dict(store) == {"alice": 2}
    assert "the disk is full" in caplog.text
