"""Where state, profiles and control sockets are."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from qtunnel.errors import ConfigError
from qtunnel.state.paths import (
    check_name,
    control_socket,
    profile_directory,
    running_instances,
    runtime_directory,
    state_directory,
)


def test_a_given_state_directory_counts_more_than_the_environment() -> None:
    environ = {"QTUNNEL_STATE_DIR": "/e"}
    assert state_directory("/given", environ) == Path("/given")
    assert state_directory(None, environ) == Path("/e")
    assert state_directory(None, {}) == Path("/var/lib/qtunnel")


def test_profiles_of_root_are_in_etc_and_a_users_own_at_home() -> None:
    assert profile_directory({"HOME": "/home/a"}, is_root=True) == Path("/etc/qtunnel/profiles")
    assert profile_directory({"HOME": "/home/a"}, is_root=False) == Path("/home/a/.config/qtunnel/profiles")
    assert profile_directory({"XDG_CONFIG_HOME": "/c"}, is_root=False) == Path("/c/qtunnel/profiles")
    assert profile_directory({"QTUNNEL_PROFILE_DIR": "/p"}, is_root=True) == Path("/p")


def test_control_sockets_of_root_are_in_run_and_a_users_in_its_own_place() -> None:
    assert runtime_directory({}, uid=0) == Path("/run/qtunnel")
    assert runtime_directory({"XDG_RUNTIME_DIR": "/run/user/7"}, uid=7) == Path("/run/user/7/qtunnel")
    assert runtime_directory({}, uid=7) == Path("/tmp/qtunnel-7")
    assert runtime_directory({"QTUNNEL_RUNTIME_DIR": "/r"}, uid=0) == Path("/r")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".hidden", "a b", "ä", "a\0", "x" * 41])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a name"):
        control_socket(Path("/r"), name)


def test_a_plain_name_is_kept() -> None:
    assert check_name("vpn.example-1_x") == "vpn.example-1_x"
    assert control_socket(Path("/r"), "home") == Path("/r/home/control.sock")


def test_running_instances_are_the_directories_with_a_socket() -> None:
    with tempfile.TemporaryDirectory(prefix="qt") as directory, socket.socket(socket.AF_UNIX) as listener:
        runtime = Path(directory)
        (runtime / "empty").mkdir()
        (runtime / "up").mkdir()
        listener.bind(str(runtime / "up" / "control.sock"))
        assert running_instances(runtime) == ["up"]
    assert running_instances(runtime) == []
