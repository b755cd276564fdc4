"""What a server remembers."""

from __future__ import annotations

from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

import pytest

from qtunnel.errors import StateError
from qtunnel.state.server_record import ServerRecord, load_server_record, save_server_record

RECORD = ServerRecord(
    server_name="a.qtunnel.invalid",
    pool4=IPv4Interface("10.77.1.1/24"),
    pool6=IPv6Interface("fd77::1/64"),
    public_name="vpn.example.net",
    public_host="vpn.example.net",
    public_port=443,
    fingerprint="0" * 64,
)


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    assert load_server_record(tmp_path) is None
    save_server_record(tmp_path, RECORD)
    assert load_server_record(tmp_path) == RECORD


def test_an_unchanged_record_is_not_written_again(tmp_path: Path) -> None:
    save_server_record(tmp_path, RECORD)
    before = (tmp_path / "server.json").stat().st_ino
    save_server_record(tmp_path, RECORD)
    assert (tmp_path / "server.json").stat().st_ino == before


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b'{"version": 9}', b"[" * 9999])
def test_a_damaged_record_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "server.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StateError, match="damaged"):
        load_server_record(tmp_path)


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    save_server_record(tmp_path, RECORD)
    path = tmp_path / "server.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(StateError, match="version 2"):
        load_server_record(tmp_path)
