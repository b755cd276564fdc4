"""The control socket of a running tunnel: one line of JSON asks, one line of JSON answers.

    {"command": "status"}                    ->  {"ok": true, "result": {...}}
    anything that is no such request         ->  {"ok": false, "error": "..."}

The socket has mode 0600 in a directory of mode 0700, and the kernel's word on who is calling is checked as well.
A lock on that directory makes a second tunnel of the same name impossible and a crashed one's leftovers harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from qtunnel.errors import (
    AlreadyRunningError,
    LocalProtocolError,
    NotRunningError,
    QTunnelError,
    StateError,
    SystemSetupError,
)
from qtunnel.state.private_file import FileLock, ensure_private_directory

__all__ = ["ControlHandler", "ControlServer", "control_request"]

logger = logging.getLogger(__name__)

ControlHandler = Callable[[], Awaitable[Mapping[str, Any]]]
"""What answers one command; the mapping becomes the result. A QTunnelError becomes the error text."""

MAX_REQUEST: Final = 4096
MAX_REPLY: Final = 16 * 1024 * 1024
MAX_CALLERS: Final = 16
IDLE_TIMEOUT_S: Final = 5.0
MAX_PATH: Final = 107
"""Bytes in sun_path, less the terminating zero (unix(7))."""
_CREDENTIALS: Final = struct.Struct("iII")


class ControlServer:
    """Listens on the control socket of one tunnel, within `async with`.

    path: of the socket; its directory is made, and removed at the end. handlers: one for each command.
    allowed_uid: who may call besides root; None is whoever runs this.

    Raises:
        AlreadyRunningError: a running tunnel has this socket. StateError, SystemSetupError: it cannot be made.
    """

    def __init__(
        self, path: Path, handlers: Mapping[str, ControlHandler], *, allowed_uid: int | None = None
    ) -> None:
        self._path = path
        self._handlers = dict(handlers)
        self._allowed_uids = frozenset({0, os.geteuid() if allowed_uid is None else allowed_uid})
        self._lock = FileLock(path.parent, wait=0)
        self._server: asyncio.Server | None = None
        self._callers: set[asyncio.Task[None]] = set()
        self._served: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}
        """Callers we wait for, the one that sleeps longest first."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to listen."""
        directory = ensure_private_directory(self._path.parent)
        try:
            self._lock.acquire()
        except AlreadyRunningError:
            raise AlreadyRunningError(
                f"a tunnel named {directory.name!r} runs already. See it: qtunnel status {directory.name}"
            ) from None
        listener = None
        try:
            listener = _listen(self._path)
            self._server = await asyncio.start_unix_server(self._on_caller, sock=listener, limit=MAX_REQUEST)
        except BaseException:
            if listener is not None:
                listener.close()
            self._remove()
            raise

    async def close(self) -> None:
        """Stop listening, hang up on callers, and remove the socket and its directory."""
        if self._server is None:
            return
        self._server.close()
        callers = tuple(self._callers)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        self._server = None
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()
        self._lock.release()

    async def _on_caller(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._callers.add(task)
        try:
            if self._take_place(task) and self._is_allowed(writer):
                await self._answer_all(task, reader, writer)
        except asyncio.CancelledError:
            pass  # by close(), which waits for us, or in favour of another caller
        except (OSError, TimeoutError):
            pass  # the caller went away, or sleeps: nobody to tell
        except Exception:
            logger.exception("control socket: request failed")
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await _hang_up(writer)
            self._callers.discard(task)
            self._served.discard(task)
            self._idle.pop(task, None)

    def _take_place(self, task: asyncio.Task[None]) -> bool:
        """Return whether this caller is served, too; one that asks nothing gives its place to one that may."""
        if len(self._served) >= MAX_CALLERS:
            sleeper = next(iter(self._idle), None)
            if sleeper is None:
                return False
            del self._idle[sleeper]
            self._served.discard(sleeper)
            sleeper.cancel()
        self._served.add(task)
        return True

    def _is_allowed(self, writer: asyncio.StreamWriter) -> bool:
        uid = _peer_uid(writer.get_extra_info("socket"))
        if uid in self._allowed_uids:
            return True
        logger.warning("control socket: refused a caller with user id %s", uid)
        return False

    async def _answer_all(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            self._idle[task] = None
            async with asyncio.timeout(IDLE_TIMEOUT_S):
                try:
                    line = await reader.readline()
                except ValueError:  # the line is longer than the limit: where it ends is unknown
                    await _send(writer, _failure(f"a request has at most {MAX_REQUEST} bytes"))
                    return
            self._idle.pop(task, None)
            if not line:
                return
            reply = await self._reply(line)
            async with asyncio.timeout(IDLE_TIMEOUT_S):
                await _send(writer, reply)

    async def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return _failure("a request is one line of JSON")
        command = request.get("command") if isinstance(request, dict) else None
        handler = self._handlers.get(command) if isinstance(command, str) else None
        if handler is None:
            return _failure(f"the commands are: {', '.join(sorted(self._handlers))}")
        try:
            return {"ok": True, "result": await handler()}
        except QTunnelError as error:
            return _failure(str(error))


async def control_request(path: Path, command: str, *, timeout_s: float = 10.0) -> dict[str, Any]:
    """Send one command to the tunnel behind a control socket and return the result.

    Raises:
        NotRunningError: nothing listens there, or it does not answer in time.
        SystemSetupError: no permission. LocalProtocolError: the tunnel refused the command, with its words.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=MAX_REPLY)
            try:
                _check_server(writer, path)
                await _send(writer, {"command": command})
                line = await reader.readline()
            finally:
                await _hang_up(writer)
    except PermissionError as error:
        raise SystemSetupError(f"no permission to use {path}", remedy="Run it as root (sudo)") from error
    except TimeoutError as error:
        raise NotRunningError(f"the tunnel behind {path} does not answer within {timeout_s:g} s") from error
    except (OSError, ValueError) as error:
        raise NotRunningError(f"no tunnel is running at {path}") from error
    return _result(line, path)


def _result(line: bytes, path: Path) -> dict[str, Any]:
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        raise NotRunningError(f"what listens at {path} does not answer like a tunnel")
    if reply.get("ok") is True and isinstance(reply.get("result"), dict):
        return dict(reply["result"])
    raise LocalProtocolError(f"the running tunnel says: {reply.get('error', 'no reason given')}")


def _check_server(writer: asyncio.StreamWriter, path: Path) -> None:
    uid = _peer_uid(writer.get_extra_info("socket"))
    if os.geteuid() != 0 and uid not in (0, os.geteuid()):
        raise SystemSetupError(f"{path} belongs to user id {uid}, who is neither root nor us")


def _failure(text: str) -> dict[str, Any]:
    return {"ok": False, "error": text}


async def _send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    writer.write(json.dumps(message, default=str).encode() + b"\n")
    await writer.drain()


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > MAX_PATH:
        raise StateError(f"{path} is longer than {MAX_PATH} bytes; set QTUNNEL_RUNTIME_DIR to a shorter directory")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # we hold the lock, so it is a leftover
        listener.bind(str(path))
        path.chmod(0o600)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise StateError(f"{path} cannot be made: {error.strerror}") from error
    return listener
