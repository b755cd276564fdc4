"""Private files: mode 0600, whole or not at all, and refused when others can read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from qtunnel.errors import AlreadyRunningError, StateError, SystemSetupError
from qtunnel.state import private_file
from qtunnel.state.private_file import FileLock, ensure_private_directory, read_private, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    made = ensure_private_directory(tmp_path / "a" / "b")
    assert mode(made) == 0o700


def test_an_existing_directory_that_others_may_enter_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o755)
    with pytest.raises(StateError, match="chmod 700"):
        ensure_private_directory(path)
    assert mode(path) == 0o755


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(mode=0o600)
    with pytest.raises(StateError, match="not a directory"):
        ensure_private_directory(path)
    with pytest.raises(StateError, match="cannot be used"):
        ensure_private_directory(path / "below")


def test_a_directory_of_someone_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "theirs"
    path.mkdir(mode=0o700)
    monkeypatch.setattr(private_file.os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
    with pytest.raises(StateError, match="belongs to user id"):
        ensure_private_directory(path)


def test_what_is_written_is_read_and_nobody_else_may(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    old_umask = os.umask(0)
    try:
        write_private(path, b"one")
    finally:
        os.umask(old_umask)
    assert mode(path) == 0o600
    assert read_private(path) == b"one"
    write_private(path, b"two", durable=False)
    assert read_private(path) == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert read_private(tmp_path / "missing") is None


def test_a_file_others_can_read_is_refused_with_what_to_type(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.write_bytes(b"x")
    path.chmod(0o640)
    with pytest.raises(StateError, match="Type: chmod 600"):
        read_private(path)


def test_a_file_that_is_too_long_or_no_file_is_refused(tmp_path: Path) -> None:
    write_private(tmp_path / "long", b"12345")
    with pytest.raises(StateError, match="longer than 4 bytes"):
        read_private(tmp_path / "long", max_bytes=4)
    with pytest.raises(StateError):
        read_private(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(StateError, match="not a plain file"):
        read_private(tmp_path / "pipe")


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    write_private(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_file.os, "replace", fail)
    with pytest.raises(StateError, match="No space left"):
        write_private(path, b"new")
    assert read_private(path) == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]


def test_no_permission_is_a_setup_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(private_file.os, "open", refuse)
    for call in (
        lambda: write_private(tmp_path / "x", b""),
        lambda: read_private(tmp_path / "x"),
        lambda: FileLock(tmp_path / "x").acquire(),
    ):
        with pytest.raises(SystemSetupError, match="sudo"):
            call()


def test_a_second_holder_of_a_lock_is_told_so(tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock"), pytest.raises(AlreadyRunningError):
        FileLock(tmp_path / "lock", wait=0).acquire()
    with FileLock(tmp_path / "lock", wait=0):
        pass


def test_waiting_for_a_lock_has_an_end(tmp_path: Path) -> None:
    with FileLock(tmp_path), pytest.raises(StateError, match="locked by another process"):
        FileLock(tmp_path, wait=0.001).acquire()
