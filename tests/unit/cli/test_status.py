"""`qtunnel status`: which tunnels run, and what they say."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from qtunnel.aio.control import ControlServer
from qtunnel.cli import status
from qtunnel.cli.status import show_status
from qtunnel.state.paths import control_socket

Runner = Callable[..., Any]

CLIENT = {
    "role": "client",
    "state": "connected",
    "server": "vpn.example.net:443",
    "remote": "192.0.2.1:443",
    "server_name": "a.qtunnel.invalid",
    "since_s": 192.4,
    "addresses": ["10.77.1.2/32", "fd77::2/128"],
    "peer_routes": ["10.77.1.0/24"],
    "inner_mtu": 1411,
    "path_mtu": 1500,
    "tun": "qtun0",
    "bytes_in": 1234567,
    "bytes_out": 10,
    "packets_in": 12345,
    "packets_out": 1,
    "drops": {"too-big": 3, "martian-source": 0},
    "rtt_ms": 12.34,
    "ipv6": "ok",
    "warnings": ["accept_local could not be set"],
    "socket": {"receive_buffer": 212992, "send_buffer": 212992, "receive_drops": 7},
    "tun_offload": {
        "super_packets_read": 30,
        "segments_read": 1234,
        "coalesced_writes": 0,
        "packets_coalesced": 0,
        "offload_fallbacks": 2,
        "bad_frames": 1,
        "coalesces_tcp": True,
        "coalesces_udp": False,
    },
}
SERVER = {
    "role": "server",
    "listen": ["0.0.0.0:443"],
    "tun": "qtun0",
    "inner_addresses": ["10.77.1.1/24"],
    "users": 2,
    "sessions": [
        {
            "user": "alice",
            "remote": "198.51.100.9:5555",
            "addresses": ["10.77.1.2"],
            "prefixes": ["192.168.7.0/24"],
            "since_s": 61,
            "inner_mtu": 1400,
            "bytes_in": 5_000_000,
            "bytes_out": 0,
            "rtt_ms": 5.0,
            "drops": {"source-not-allowed": 2},
        }
    ],
    "handshakes": 3,
    "retry_active": True,
    "retries_sent": 4321,
    "internal_errors": 1,
    "drops": {"not-quic": 9},
    "warnings": [],
    "sockets": [{"local": "0.0.0.0:443", "receive_buffer": 4194304, "send_buffer": 4194304, "receive_drops": 0}],
}


def test_a_client_shows_what_people_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    show_status("home", CLIENT)
    text = capsys.readouterr().out
    for words in (
        "home: client, connected for 3 min 12 s",
        "vpn.example.net:443 at 192.0.2.1:443",
        "10.77.1.2/32, fd77::2/128",
        "1411",
        "12.3 ms",
        "1.2 MB in 12,345 packets",
        "10 B in 1 packet\n",
        "too-big 3\n",
        "7 datagrams lost because the receive buffer was full",
        "30 super-packets read, 1,234 packets in them, 2 refused and written one by one, 1 dropped as",
        "warning: accept_local could not be set",
    ):
        assert words in text
    assert "martian-source" not in text


def test_a_server_shows_its_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    show_status("server", SERVER)
    text = capsys.readouterr().out
    for words in (
        "server: server, 1 of 2 users connected",
        "not-quic 9",
        "many handshakes at once, 4,321 sent\n",
        "1 connections ended by a fault in qtunnel",
        "198.51.100.9:5555",
    ):
        assert words in text
    row = next(line for line in text.splitlines() if line.startswith("alice"))
    assert "10.77.1.2, 192.168.7.0/24" in row
    assert "source-not-allowed 2" in row


@pytest.mark.parametrize("complete", [CLIENT, SERVER])
def test_an_answer_of_another_version_is_shown_as_far_as_it_goes(
    complete: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for key in complete:
        for value in (None, [], {}, "x", 5, [None], [{}]):
            show_status("x", complete | {key: value})
        show_status("x", {name: value for name, value in complete.items() if name != key})
    show_status("x", {})
    assert capsys.readouterr().out


def test_nothing_running_is_status_9(run: Runner) -> None:
    outcome = run("status")
    assert outcome.code == 9
    assert "no tunnel is running here" in outcome.err
    assert run("status", "home").code == 9
    assert run("status", "../x").code == 3


def test_a_user_is_told_that_root_may_have_tunnels(
    run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(status, "ROOT_RUNTIME_DIRECTORY", tmp_path)
    monkeypatch.setattr(status.os, "geteuid", lambda: 1000)
    assert "sudo qtunnel status" in run("status").err
    monkeypatch.setattr(status.os, "geteuid", lambda: 0)
    assert "sudo" not in run("status").err


def test_what_a_crash_left_is_not_running(run: Runner, world: Any) -> None:
    for name in ("a", "b"):
        (world.runtime / name).mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as crashed:
            crashed.bind(str(world.runtime / name / "control.sock"))
    assert run("status").code == 9
    assert run("status", "a").code == 9


async def ask(world: Any, answers: dict[str, dict[str, Any]], *arguments: str) -> tuple[int, str, str]:
    """Run `qtunnel status` while tunnels answer."""

    def handler(answer: dict[str, Any]) -> Callable[[], Any]:
        async def status() -> dict[str, Any]:
            return answer

        return status

    async with AsyncExitStack() as stack:
        for name, answer in answers.items():
            path = control_socket(world.runtime, name)
            await stack.enter_async_context(ControlServer(path, {"status": handler(answer)}))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "qtunnel", "status", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_json_is_what_the_tunnel_said(world: Any) -> None:
    code, out, _ = await ask(world, {"home": CLIENT}, "--json")
    assert code == 0
    assert json.loads(out) == CLIENT


async def test_several_tunnels_are_all_shown(world: Any) -> None:
    code, out, _ = await ask(world, {"home": CLIENT, "server": SERVER})
    assert code == 0
    assert "home: client" in out
    assert "server: server" in out


async def test_several_tunnels_need_a_name_for_json(world: Any) -> None:
    answers = {"home": CLIENT, "server": SERVER}
    code, _, err = await ask(world, answers, "--json")
    assert code == 9
    assert "home, server" in err
    code, out, _ = await ask(world, answers, "server", "--json")
    assert json.loads(out) == SERVER


async def test_a_name_that_is_not_running_is_told_with_the_others(world: Any) -> None:
    code, _, err = await ask(world, {"home": CLIENT}, "work")
    assert code == 9
    assert "Others: home" in err
