"""Profiles: one private TOML file a tunnel."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import ConfigError, EntryError, StateError
from qtunnel.state.join_link import JoinLink
from qtunnel.state.paths import check_name
from qtunnel.state.profiles import ProfileStore, suggest_name

LINK = JoinLink(
    host="vpn.example.net",
    port=4433,
    server_name="a.qtunnel.invalid",
    fingerprint="ab" * 32,
    user="alice",
    token="a-secret-token-of-some-length",
)


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "profiles")


def test_a_saved_profile_says_what_the_link_said(store: ProfileStore) -> None:
    path = store.save("home", LINK)
    assert tomllib.loads(store.read("home")) == {
        "server": "vpn.example.net",
        "port": 4433,
        "server_name": "a.qtunnel.invalid",
        "fingerprint": "ab" * 32,
        "token": "a-secret-token-of-some-length",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


def test_a_profile_is_replaced_only_when_asked(store: ProfileStore) -> None:
    store.save("home", LINK)
    with pytest.raises(EntryError, match="already"):
        store.save("home", LINK)
    store.save("home", LINK, replace=True)
    assert store.names() == ["home"]


def test_the_servers_own_name_is_no_profile(store: ProfileStore) -> None:
    with pytest.raises(EntryError, match="calls a server"):
        store.save("server", LINK)


def test_a_name_that_leads_elsewhere_is_refused(store: ProfileStore) -> None:
    for call in (lambda: store.save("../x", LINK), lambda: store.read("a/b"), lambda: store.remove("..")):
        with pytest.raises(ConfigError):
            call()


def test_the_only_profile_needs_no_name(store: ProfileStore) -> None:
    with pytest.raises(EntryError, match="qtunnel join"):
        store.only_name()
    store.save("home", LINK)
    assert store.only_name() == "home"
    store.save("work", LINK)
    with pytest.raises(EntryError, match="home, work"):
        store.only_name()


def test_a_removed_profile_is_gone(store: ProfileStore) -> None:
    store.save("home", LINK)
    store.remove("home")
    assert store.names() == []
    with pytest.raises(EntryError, match="Known: none"):
        store.remove("home")
    with pytest.raises(EntryError, match="Known: none"):
        store.read("home")


def test_a_profile_others_can_read_is_refused(store: ProfileStore) -> None:
    store.save("home", LINK).chmod(0o644)
    with pytest.raises(StateError, match="chmod 600"):
        store.read("home")


def test_a_profile_that_is_no_text_is_told(store: ProfileStore) -> None:
    store.save("home", LINK).write_bytes(b"\xff\xfe")
    with pytest.raises(StateError, match="UTF-8"):
        store.read("home")


@given(
    st.sampled_from(["vpn.example.net", "2001:db8::1", "192.0.2.1", "server", "::1", "a" * 60 + ".net"])
    | st.from_regex(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
)
def test_every_host_gives_a_usable_profile_name(host: str) -> None:
    link = JoinLink(host=host, server_name="a.net", user="a", token="x" * 16) if len(host) < 63 else LINK
    name = suggest_name(link)
    assert check_name(name) == name
    assert name != "server"
