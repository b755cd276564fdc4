"""Users on disk: hashes only, changed under a lock, damaged files told."""

from __future__ import annotations

import hashlib
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import pytest

from qtunnel.config import token_digest
from qtunnel.errors import ConfigError, EntryError, StateError
from qtunnel.state.users import UserStore, new_token

NOW = datetime(2026, 12, 1, 10, 30, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> UserStore:
    return UserStore(tmp_path, now=lambda: NOW)


def test_an_added_user_is_there_with_the_hash_of_its_token(store: UserStore, tmp_path: Path) -> None:
    assert not store.exists()
    token = store.add("alice", [ip_network("192.168.7.0/24"), ip_network("fd07::/64")])
    (user,) = store.users()
    assert user.name == "alice"
    assert user.token_sha256 == hashlib.sha256(token.encode()).hexdigest() == token_digest(token)
    assert user.prefixes == (ip_network("192.168.7.0/24"), ip_network("fd07::/64"))
    assert store.records()[0].token_issued == "2026-12-01T10:30:00+00:00"
    assert store.exists()
    content = (tmp_path / "users.json").read_text()
    assert token not in content
    assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600


def test_a_token_is_32_random_bytes_in_base64url() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {43}


def test_a_name_is_taken_once(store: UserStore) -> None:
    store.add("alice")
    with pytest.raises(EntryError, match="qtunnel user link alice"):
        store.add("alice")


def test_a_name_that_cannot_be_one_is_refused(store: UserStore) -> None:
    with pytest.raises(ConfigError):
        store.add("a/b")
    assert store.users() == ()


def test_a_removed_user_is_gone(store: UserStore) -> None:
    store.add("alice")
    store.add("bob")
    store.remove("alice")
    assert [user.name for user in store.users()] == ["bob"]
    with pytest.raises(EntryError, match=r"no user 'alice'\. Known: bob"):
        store.remove("alice")


def test_a_new_token_replaces_the_old_one_and_nothing_else(store: UserStore) -> None:
    old = store.add("alice", [ip_network("10.9.0.0/16")])
    store.add("bob")
    new = store.renew_token("alice")
    alice, bob = store.users()
    assert alice.token_sha256 == token_digest(new) != token_digest(old)
    assert alice.prefixes == (ip_network("10.9.0.0/16"),)
    assert bob.name == "bob"
    with pytest.raises(EntryError):
        store.renew_token("carol")


def test_changes_at_the_same_time_all_arrive(store: UserStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.add, [f"user{number}" for number in range(24)]))
    assert len(store.users()) == 24


GOOD = {"name": "alice", "token_sha256": "0" * 64, "prefixes": [], "token_issued": ""}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"[" * 10_000, "damaged"),
        (b'{"version": 1, "users": 5}', "damaged"),
        (json.dumps({"version": 1, "users": [GOOD | {"name": "a b"}]}).encode(), "damaged"),
        (json.dumps({"version": 1, "users": [GOOD | {"token_sha256": "x"}]}).encode(), "damaged"),
        (json.dumps({"version": 1, "users": [GOOD | {"prefixes": ["10.0.0.1/8"]}]}).encode(), "damaged"),
        (json.dumps({"version": 2, "users": [GOOD]}).encode(), "version 2"),
        (json.dumps({"version": 1, "users": [GOOD, GOOD]}).encode(), "twice"),
    ],
)
def test_a_damaged_file_is_told_and_not_overwritten(
    store: UserStore, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StateError, match=reason):
        store.users()
    with pytest.raises(StateError, match=reason):
        store.add("bob")
    assert path.read_bytes() == content


def test_hashes_are_in_no_repr(store: UserStore) -> None:
    token = store.add("alice")
    assert token_digest(token) not in repr(store.records())
    assert token_digest(token) not in repr(store.users())
