"""A command line in a world of its own: directories in tmp_path, and a tunnel library that only remembers."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import types
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import qtunnel
from qtunnel.cli.main import run_command


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Runner = Callable[..., Outcome]


@dataclass
class World:
    """Where everything of this test is."""

    state: Path
    profiles: Path
    runtime: Path


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    runtime = Path(tempfile.mkdtemp(prefix="qt"))  # a socket's path must be short
    world = World(tmp_path / "state", tmp_path / "profiles", runtime)
    monkeypatch.setenv("QTUNNEL_STATE_DIR", str(world.state))
    monkeypatch.setenv("QTUNNEL_PROFILE_DIR", str(world.profiles))
    monkeypatch.setenv("QTUNNEL_RUNTIME_DIR", str(world.runtime))
    monkeypatch.setenv("QTUNNEL_CONFIG", "")
    monkeypatch.delenv("QTUNNEL_DEBUG", raising=False)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setattr("qtunnel.linux.host_networks.host_networks", list)
    monkeypatch.setattr("qtunnel.cli.first_start.source_address", lambda: "192.0.2.7")
    yield world
    shutil.rmtree(runtime)


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Undo what a command does to its process: the umask and the log."""
    umask = os.umask(0o022)
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    os.umask(umask)
    for handler in logging.getLogger().handlers[:]:
        if handler not in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
    logging.getLogger().setLevel(level)
    logging.getLogger("qtunnel").setLevel(logging.NOTSET)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Run the program and return its exit status, output and errors."""

    def run(*arguments: str) -> Outcome:
        code = run_command(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(int(code), captured.out, captured.err)

    return run


class FakeTunnel:
    """Stands for a TunnelServer or a TunnelClient: says what it is told to say, and ends as it is told."""

    def __init__(self) -> None:
        self.listening = ("0.0.0.0:443",)
        self.users: list[tuple[Any, ...]] = []
        self.to_happen: list[object] = []
        self.ends_with: BaseException | None = None
        self.while_up: Callable[[], Any] | None = None
        self.answer: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        return self.answer

    async def events(self) -> AsyncIterator[object]:
        for event in self.to_happen:
            yield event

    async def set_users(self, users: tuple[Any, ...]) -> None:
        self.users.append(tuple(users))

    async def wait_connected(self) -> None:
        return None

    async def wait_closed(self) -> None:
        if self.while_up is not None:
            await self.while_up()
        if self.ends_with is not None:
            raise self.ends_with


@dataclass
class FakeApi:
    """What the command line asked of the library."""

    tunnel: FakeTunnel = field(default_factory=FakeTunnel)
    calls: list[dict[str, Any]] = field(default_factory=list)
    refuses_with: BaseException | None = None
    privileges_kept: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def config(self) -> Any:
        return self.calls[-1]["config"]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()

    @asynccontextmanager
    async def enter(config: Any, **said: Any) -> AsyncIterator[FakeTunnel]:
        fake.calls.append({"config": config, **said})
        if fake.refuses_with is not None:
            raise fake.refuses_with
        yield fake.tunnel

    module = types.ModuleType("qtunnel.api")
    module.serve = module.connect = enter  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "qtunnel.api", module)
    monkeypatch.setattr(qtunnel, "api", module, raising=False)
    # For real it would take root from every test that follows.
    monkeypatch.setattr("qtunnel.linux.privileges.drop_privileges", fake.privileges_kept.append)
    return fake
