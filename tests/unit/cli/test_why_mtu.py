"""`qtunnel why-mtu` tells a person what happened, and a program the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qtunnel.cli import why_mtu as module
from qtunnel.cli.main import run_command

STEP = {"ago_s": 61.2, "mtu": 1400, "text": "link MTU 1400 is the end: one byte more does not get through"}
PATH = {
    "mtu": 1400,
    "state": "search-complete",
    "since_s": 60.0,
    "why": [STEP] * 20,
    "probes": 9,
    "probe_bytes": 12_345,
    "probes_lost": 3,
}
CLIENT = {"role": "client", "path_mtu": 1400, "path": PATH}
SERVER = {
    "role": "server",
    "sessions": [
        {"user": "alice", "path_mtu": 1400, "path": PATH},
        {"user": "bob", "path_mtu": 1500, "path": {"mtu": 1500, "state": "told", "since_s": None, "why": []}},
    ],
}


def ask_for(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], *arguments: str) -> int:
    monkeypatch.setattr(module, "tunnels_to_ask", lambda *_args, **_kwargs: ["home"])
    monkeypatch.setattr(module, "ask", lambda *_: answer)
    return run_command(["why-mtu", *arguments])


def test_a_client_tells_the_newest_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask_for(monkeypatch, CLIENT) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "home, to the server: path MTU 1400 (found by probing, for 1 min" in lines[0]
    assert "8 earlier steps: --all" in lines[1]
    assert len(lines) == 2 + module.STEPS + 1
    assert lines[-2].endswith(STEP["text"])
    assert "9 probes of 12,345 bytes, of which 3 were lost" in lines[-1]
    assert ask_for(monkeypatch, CLIENT, "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 20 + 1


def test_a_server_tells_of_each_client(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask_for(monkeypatch, SERVER) == 0
    out = capsys.readouterr().out
    assert "home, to alice" in out
    assert "home, to bob: path MTU 1500 (as told)" in out
    assert "nothing was asked: the size was told" in out
    assert ask_for(monkeypatch, SERVER, "--json") == 0
    assert json.loads(capsys.readouterr().out)["alice"]["mtu"] == 1400


def test_where_nobody_is_connected_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask_for(monkeypatch, {"role": "client", "state": "connecting"}) == 0
    assert "nobody is connected" in capsys.readouterr().out
