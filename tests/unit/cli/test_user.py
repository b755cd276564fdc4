"""`qtunnel user`: changes on disk, and a running server that hears of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Any

import pytest

from qtunnel.aio.control import ControlServer
from qtunnel.config import token_digest
from qtunnel.errors import StateError
from qtunnel.state.join_link import parse_join_link
from qtunnel.state.leases import LeaseStore
from qtunnel.state.paths import control_socket
from qtunnel.state.private_file import ensure_private_directory
from qtunnel.state.server_record import ServerRecord, save_server_record
from qtunnel.state.users import UserStore

Runner = Callable[..., Any]


@pytest.fixture
def store(world: Any) -> UserStore:
    ensure_private_directory(world.state)
    record = ServerRecord(
        server_name="a.qtunnel.invalid",
        pool4=IPv4Interface("10.77.1.1/24"),
        pool6=IPv6Interface("fd77::1/64"),
        public_name="vpn.example.net",
        public_host="vpn.example.net",
        public_port=443,
        fingerprint="0" * 64,
    )
    save_server_record(world.state, record)
    return UserStore(world.state, now=lambda: datetime(2026, 12, 1, tzinfo=UTC))


def link_of(world: Any, user: str) -> Any:
    return parse_join_link((world.state / "join" / f"{user}.link").read_text())


def test_an_added_user_has_a_link_that_works(run: Runner, world: Any, store: UserStore) -> None:
    outcome = run("user", "add", "alice", "--prefix", "192.168.7.0/24", "--prefix", "fd07::/64")
    assert outcome.code == 0
    assert "counts from its next start" in outcome.err
    (user,) = store.users()
    link = link_of(world, "alice")
    assert user.token_sha256 == token_digest(link.token)
    assert [str(prefix) for prefix in user.prefixes] == ["192.168.7.0/24", "fd07::/64"]
    assert link.token not in outcome.out + outcome.err


def test_print_gives_the_link_alone(run: Runner, store: UserStore) -> None:
    outcome = run("user", "add", "alice", "--print")
    assert parse_join_link(outcome.out).user == "alice"


def test_a_new_link_makes_the_old_one_worthless(run: Runner, world: Any, store: UserStore) -> None:
    run("user", "add", "alice")
    old = link_of(world, "alice").token
    assert run("user", "link", "alice").code == 0
    new = link_of(world, "alice").token
    assert store.users()[0].token_sha256 == token_digest(new) != token_digest(old)


def test_a_removed_user_is_gone_with_its_link(run: Runner, world: Any, store: UserStore) -> None:
    run("user", "add", "alice")
    assert run("user", "remove", "alice").code == 0
    assert store.users() == ()
    assert list((world.state / "join").iterdir()) == []


def test_the_list_shows_addresses_and_networks_and_no_hash(run: Runner, world: Any, store: UserStore) -> None:
    assert run("user", "list").out == "no users\n"
    token = store.add("alice")
    LeaseStore(world.state).save({"alice": 5})
    store.add("bob")
    outcome = run("user", "list")
    lines = outcome.out.splitlines()
    assert lines[1].split() == ["alice", "10.77.1.5,", "fd77::5", "-", "2026-12-01T00:00:00+00:00"]
    assert lines[2].split()[:2] == ["bob", "-"]
    assert token_digest(token) not in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["remove", "carol"], 12),
        (["link", "carol"], 12),
        (["add", "alice"], 12),
        (["add", "a b"], 3),
        (["add", "bob", "--prefix", "10.0.0.1/8"], 3),
        (["add", "bob", "--prefix", "net"], 3),
    ],
)
def test_what_cannot_be_is_told(run: Runner, store: UserStore, arguments: list[str], code: int) -> None:
    store.add("alice")
    assert run("user", *arguments).code == code
    assert [user.name for user in store.users()] == ["alice"]


@pytest.mark.parametrize("is_there", [False, True])
def test_without_a_server_there_are_no_users(run: Runner, world: Any, is_there: bool) -> None:
    if is_there:
        ensure_private_directory(world.state)
    outcome = run("user", "add", "alice")
    assert outcome.code == 13
    assert "qtunnel serve" in outcome.err


async def tell(world: Any, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "qtunnel", "user", *arguments,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await process.communicate()
    return process.returncode or 0, err.decode()


async def test_a_running_server_hears_of_it(world: Any, store: UserStore) -> None:
    heard: list[list[str]] = []

    async def reload_users() -> dict[str, Any]:
        heard.append([user.name for user in store.users()])
        return {}

    async with ControlServer(control_socket(world.runtime, "server"), {"reload-users": reload_users}):
        assert await tell(world, "add", "alice") == (0, "")
        assert await tell(world, "remove", "alice") == (0, "")
    assert heard == [["alice"], []]


async def test_a_server_that_cannot_take_it_is_told(world: Any, store: UserStore, tmp_path: Path) -> None:
    async def reload_users() -> dict[str, Any]:
        raise StateError("no")

    async with ControlServer(control_socket(world.runtime, "server"), {"reload-users": reload_users}):
        code, err = await tell(world, "add", "alice")
    assert code == 13
    assert "it is saved, but the running server could not be told" in err
