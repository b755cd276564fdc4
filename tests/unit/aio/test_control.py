"""The control socket: who may call, what any bytes get, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from qtunnel.aio import control
from qtunnel.aio.control import ControlServer, control_request
from qtunnel.errors import (
    AlreadyRunningError,
    LocalProtocolError,
    NotRunningError,
    StateError,
    SystemSetupError,
)


@pytest.fixture
def path() -> Iterator[Path]:
    """Not tmp_path: the path of a socket has room for about 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="qt") as directory:
        yield Path(directory) / "home" / "control.sock"


async def answer() -> Mapping[str, Any]:
    return {"state": "up", "large": "x" * 100_000}


async def refuse() -> Mapping[str, Any]:
    raise StateError("users.json is damaged")


async def break_down() -> Mapping[str, Any]:
    raise ZeroDivisionError


HANDLERS = {"status": answer, "reload-users": refuse, "break": break_down}


@asynccontextmanager
async def raw(path: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.close()


async def send_raw(path: Path, data: bytes) -> bytes:
    """Send bytes and the end, and return everything that comes back."""
    async with raw(path) as (reader, writer):
        writer.write(data)
        writer.write_eof()
        try:
            return await reader.read()
        except ConnectionResetError:  # hung up on before all was read
            return b""


async def test_a_command_is_answered(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        assert await control_request(path, "status") == await answer()


async def test_socket_and_directory_are_for_their_owner_alone(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
    assert not os.path.exists(path.parent)  # noqa: ASYNC240


async def test_several_requests_fit_into_one_connection(path: Path) -> None:
    async with ControlServer(path, HANDLERS), raw(path) as (reader, writer):
        for _ in range(3):
            writer.write(b'{"command": "status"}\n')
            assert json.loads(await reader.readline())["ok"] is True


async def test_our_own_errors_are_the_answer(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        with pytest.raises(LocalProtocolError, match=r"users\.json is damaged"):
            await control_request(path, "reload-users")
        with pytest.raises(LocalProtocolError, match="the commands are: break, reload-users, status"):
            await control_request(path, "reboot")


async def test_a_fault_of_ours_hangs_up_and_is_logged_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with ControlServer(path, HANDLERS):
        with pytest.raises(NotRunningError):
            await control_request(path, "break")
        assert "ZeroDivisionError" in caplog.text
        assert (await control_request(path, "status"))["state"] == "up"


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"status\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b'{"command": ["status"]}\n',
        b'{"command": null}\n',
        b"[" * 4000 + b"\n",
        b"9" * 4000 + b"\n",
        b'{"command": "status"',
    ],
)
async def test_bytes_that_are_no_request_get_an_error_line(path: Path, data: bytes) -> None:
    async with ControlServer(path, HANDLERS):
        reply = json.loads(await send_raw(path, data))
        assert reply["ok"] is False
        assert reply["error"]


async def test_an_endless_line_is_refused_and_hung_up_on(path: Path) -> None:
    async with ControlServer(path, HANDLERS), raw(path) as (reader, writer):
        writer.write(b"x" * 4 * control.MAX_REQUEST)
        reply = await reader.readline()
        assert reply == b"" or b"at most" in reply


async def test_a_caller_of_another_user_is_hung_up_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = ControlServer(path, HANDLERS, allowed_uid=12345)
    server._allowed_uids = frozenset({12345})
    async with server:
        assert await send_raw(path, b'{"command": "status"}\n') == b""
    assert f"refused a caller with user id {os.getuid()}" in caplog.text


async def test_root_may_call_the_tunnel_of_a_user(path: Path) -> None:
    server = ControlServer(path, HANDLERS, allowed_uid=12345)
    assert server._allowed_uids == {0, 12345}


async def test_callers_beyond_the_bound_are_hung_up_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_CALLERS", 2)
    asked = asyncio.Event()
    answer = asyncio.Event()
    waiting = 0

    async def slow() -> dict[str, Any]:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            asked.set()
        await answer.wait()
        return {}

    async with ControlServer(path, {"slow": slow}), raw(path) as first, raw(path) as second:
        for _, writer in (first, second):
            writer.write(b'{"command": "slow"}\n')
        await asked.wait()
        assert await send_raw(path, b'{"command": "slow"}\n') == b""
        answer.set()
        for reader, _ in (first, second):
            assert b"true" in await reader.readline()


async def test_a_hundred_callers_who_sleep_keep_nobody_from_asking(path: Path) -> None:
    async with ControlServer(path, HANDLERS) as server, contextlib.AsyncExitStack() as stack:
        sleepers = [await stack.enter_async_context(raw(path)) for _ in range(100)]
        assert await control_request(path, "status", timeout_s=2.0)
        assert len(server._served) <= control.MAX_CALLERS
        async with asyncio.timeout(control.IDLE_TIMEOUT_S / 2):  # not because it slept too long
            assert await sleepers[0][0].read() == b""
        _, writer = sleepers[-1]
        writer.write(b'{"command": "status"}\n')
        assert await sleepers[-1][0].readline() != b""


async def test_a_caller_who_sleeps_is_hung_up_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "IDLE_TIMEOUT_S", 0.0)
    async with ControlServer(path, HANDLERS), raw(path) as (reader, _):
        assert await reader.read() == b""


async def test_closing_hangs_up_on_callers(path: Path) -> None:
    server = ControlServer(path, HANDLERS)
    await server.start()
    async with raw(path) as (reader, writer):
        writer.write(b'{"command": "status"}\n')
        await reader.readline()
        await server.close()
        assert await reader.read() == b""
    await server.close()


async def test_a_second_tunnel_of_the_name_is_refused_and_the_first_stays(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        with pytest.raises(AlreadyRunningError, match="qtunnel status home"):
            await ControlServer(path, HANDLERS).start()
        assert await control_request(path, "status")


async def test_what_a_crash_left_is_no_obstacle(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(path))
    with pytest.raises(NotRunningError, match="no tunnel is running"):
        await control_request(path, "status")
    async with ControlServer(path, HANDLERS):
        assert await control_request(path, "status")


async def test_a_path_too_long_for_a_socket_is_told(path: Path) -> None:
    long = path.parent / ("x" * 100) / "control.sock"
    with pytest.raises(StateError, match="QTUNNEL_RUNTIME_DIR"):
        await ControlServer(long, HANDLERS).start()
    assert not long.parent.exists()


async def test_nothing_there_is_not_running(path: Path) -> None:
    with pytest.raises(NotRunningError):
        await control_request(path, "status")


@pytest.mark.parametrize("reply", [b"", b"\n", b"no json\n", b"[1]\n", b"[" * 5000 + b"\n", b'"x"\n'])
async def test_something_else_behind_the_socket_is_not_running(path: Path, reply: bytes) -> None:
    async def on_caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        await writer.drain()
        writer.close()

    path.parent.mkdir(mode=0o700)
    async with await asyncio.start_unix_server(on_caller, str(path)):
        with pytest.raises(NotRunningError):
            await control_request(path, "status")


async def test_a_tunnel_that_does_not_answer_is_given_up_on(path: Path) -> None:
    async def hang() -> Mapping[str, Any]:
        await asyncio.get_running_loop().create_future()
        return {}

    async with ControlServer(path, {"status": hang}):
        with pytest.raises(NotRunningError, match="does not answer within"):
            await control_request(path, "status", timeout_s=0.01)


async def test_no_permission_is_a_setup_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(control.asyncio, "open_unix_connection", refuse)
    with pytest.raises(SystemSetupError, match="sudo"):
        await control_request(path, "status")


async def test_a_socket_of_a_stranger_is_not_trusted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ControlServer(path, HANDLERS):
        monkeypatch.setattr(control, "_peer_uid", lambda _: 12345)
        monkeypatch.setattr(control.os, "geteuid", lambda: 1000)
        with pytest.raises(SystemSetupError, match="neither root nor us"):
            await control_request(path, "status")
