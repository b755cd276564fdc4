"""`qtunnel join`: from standard input or a file, never an argument."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from qtunnel.cli import join

Runner = Callable[..., Any]

TOKEN = "abcdefghijklmnopqrstuvwxyz0123456789"
LINK = f"qtunnel://vpn.example.net:4433/?name=a.invalid&user=alice#{TOKEN}"


@pytest.fixture
def link_file(tmp_path: Path) -> str:
    path = tmp_path / "alice.link"
    path.write_text(LINK + "\n")
    return str(path)


def stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_link_in_a_file_becomes_a_private_profile(run: Runner, world: Any, link_file: str) -> None:
    outcome = run("join", link_file)
    path = world.profiles / "vpn.example.net.toml"
    assert outcome.code == 0
    assert str(path) in outcome.out
    assert "qtunnel connect vpn.example.net" in outcome.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TOKEN in path.read_text()
    assert TOKEN not in outcome.out + outcome.err


@pytest.mark.parametrize("arguments", [["join"], ["join", "-"]])
def test_a_link_on_standard_input_does_the_same(
    run: Runner, world: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    stdin(monkeypatch, LINK)
    assert run(*arguments, "--name", "home").code == 0
    assert (world.profiles / "home.toml").exists()


def test_the_output_of_user_add_will_do(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, f"Join link for alice.\n{LINK}\nOn the client: ...\n")
    assert run("join").code == 0


def test_on_a_terminal_it_is_asked_for_and_not_shown(
    run: Runner, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def prompt(text: str, **how: Any) -> str:
        asked.update(how)
        return LINK

    monkeypatch.setattr(join, "is_terminal", lambda _: True)
    monkeypatch.setattr(click, "prompt", prompt)
    assert run("join", "--name", "home").code == 0
    assert asked["hide_input"] is True


def test_a_profile_is_not_replaced_by_accident(run: Runner, link_file: str) -> None:
    assert run("join", link_file, "--name", "home").code == 0
    assert run("join", link_file, "--name", "home").code == 12
    assert run("join", link_file, "--name", "home", "--replace").code == 0


@pytest.mark.parametrize("text", ["", "nonsense", LINK[:-30], LINK.replace("4433", "0"), LINK + "\n" + LINK])
def test_what_is_no_link_is_status_3_and_makes_nothing(
    run: Runner, world: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    stdin(monkeypatch, text)
    outcome = run("join")
    assert outcome.code == 3
    assert TOKEN not in outcome.err
    assert not world.profiles.exists()


def test_a_file_that_cannot_be_read_is_status_3(run: Runner, tmp_path: Path) -> None:
    assert run("join", str(tmp_path / "missing")).code == 3
    assert run("join", str(tmp_path)).code == 3
