"""How a join link leaves the server."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from qtunnel.cli import links
from qtunnel.cli.links import forget_link, hand_out_link
from qtunnel.state.join_link import parse_join_link
from qtunnel.state.server_record import ServerRecord

TOKEN = "abcdefghijklmnopqrstuvwxyz0123456789"
RECORD = ServerRecord(
    server_name="a.qtunnel.invalid",
    public_name="vpn.example.net",
    public_host="vpn.example.net",
    public_port=443,
    fingerprint="0" * 64,
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "is_terminal", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_the_link_is_shown_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_out_link(tmp_path, RECORD, "alice", TOKEN)
    lines = capsys.readouterr().out.splitlines()
    (link,) = [line for line in lines if line.startswith("qtunnel://")]
    assert parse_join_link(link).token == TOKEN
    assert list(tmp_path.iterdir()) == []


def test_anywhere_else_it_goes_into_a_private_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_out_link(tmp_path, RECORD, "alice", TOKEN)
    path = tmp_path / "join" / "alice.link"
    assert str(path) in capsys.readouterr().out
    assert parse_join_link(path.read_text()).user == "alice"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_whoever_asks_has_it_printed_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_out_link(tmp_path, RECORD, "alice", TOKEN)
    capsys.readouterr()
    hand_out_link(tmp_path, RECORD, "alice", TOKEN, print_anyway=True)
    assert parse_join_link(capsys.readouterr().out).token == TOKEN
    assert not (tmp_path / "join" / "alice.link").exists()


def test_a_guessed_host_is_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guessed = ServerRecord(
        server_name="a.qtunnel.invalid", public_host="192.0.2.7", public_port=443, fingerprint="0" * 64
    )
    hand_out_link(tmp_path, guessed, "alice", TOKEN)
    assert "192.0.2.7, this host's own address" in capsys.readouterr().out


def test_a_forgotten_link_is_gone(tmp_path: Path) -> None:
    forget_link(tmp_path, "alice")
    hand_out_link(tmp_path, RECORD, "alice", TOKEN)
    forget_link(tmp_path, "alice")
    assert not (tmp_path / "join" / "alice.link").exists()
