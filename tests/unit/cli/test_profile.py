"""`qtunnel profile`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qtunnel.state.join_link import JoinLink
from qtunnel.state.profiles import ProfileStore

Runner = Callable[..., Any]


@pytest.fixture
def store(world: Any) -> ProfileStore:
    store = ProfileStore(world.profiles)
    for name in ("home", "work"):
        link = JoinLink(host=f"{name}.example", server_name="a.net", user="a", token="a-token-never-shown")
        store.save(name, link)
    return store


def test_the_list_names_profile_and_server_and_no_token(run: Runner, store: ProfileStore) -> None:
    outcome = run("profile", "list")
    assert "home" in outcome.out
    assert "work.example:443" in outcome.out
    assert "a-token-never-shown" not in outcome.out


def test_a_damaged_profile_does_not_hide_the_others(run: Runner, store: ProfileStore) -> None:
    store.path("home").write_text("token = 'a-token-never-shown")
    store.path("work").chmod(0o644)
    outcome = run("profile", "list")
    assert outcome.code == 0
    assert "is not TOML" in outcome.out
    assert "chmod 600" in outcome.out
    assert "a-token-never-shown" not in outcome.out


def test_no_profiles_is_told(run: Runner) -> None:
    assert "no profile in" in run("profile", "list").out


def test_a_profile_can_be_removed_once(run: Runner, store: ProfileStore) -> None:
    assert run("profile", "remove", "home").code == 0
    assert store.names() == ["work"]
    assert run("profile", "remove", "home").code == 12
    assert run("profile", "remove", "../x").code == 3
