"""Forwarding noted down: what the next tunnel makes of it when one was killed, or another still needs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qtunnel.errors import SystemSetupError
from qtunnel.linux import forwarding as forwarding_module
from qtunnel.linux import forwarding_journal
from qtunnel.linux.forwarding import Forwarding
from qtunnel.linux.sysctl import read_sysctl

SWITCH = "net/ipv6/conf/all/forwarding"
ACCEPT_RA = "net/ipv6/conf/eth0/accept_ra"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for key, value in ((SWITCH, "0"), (ACCEPT_RA, "1")):
        path = tmp_path / "sys" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)
    return tmp_path / "sys"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "run" / "qtunnel"


def settings(root: Path) -> tuple[str | None, str | None]:
    return read_sysctl(SWITCH, root=root), read_sysctl(ACCEPT_RA, root=root)


def kill(forwarding: Forwarding) -> None:
    """Do what the kernel does with the locks of a process that is killed."""
    forwarding._journal.close()


def test_what_a_killed_tunnel_left_on_is_put_back_by_the_next(root: Path, journal: Path) -> None:
    killed = Forwarding(6, root=root, journal=journal)
    assert killed.switch_on()
    assert settings(root) == ("1", "2")
    kill(killed)
    assert Forwarding(6, root=root, journal=journal).restore()
    assert settings(root) == ("0", "1")
    assert list(journal.iterdir()) == []
    assert not Forwarding(6, root=root, journal=journal).restore()


def test_the_last_tunnel_that_needs_it_puts_it_back(root: Path, journal: Path) -> None:
    first, second = (Forwarding(6, root=root, journal=journal) for _ in range(2))
    assert first.switch_on()
    assert not second.switch_on()
    assert not first.restore()
    assert not Forwarding(6, root=root, journal=journal).restore()
    assert settings(root) == ("1", "2")
    assert second.restore()
    assert settings(root) == ("0", "1")


def test_a_tunnel_that_finds_it_left_on_takes_over(root: Path, journal: Path) -> None:
    killed, heir = (Forwarding(6, root=root, journal=journal) for _ in range(2))
    killed.switch_on()
    kill(killed)
    assert not heir.switch_on()
    assert heir.restore()
    assert settings(root) == ("0", "1")


def test_switched_off_by_somebody_and_on_by_a_second_tunnel_all_is_put_back(root: Path, journal: Path) -> None:
    first, second = (Forwarding(6, root=root, journal=journal) for _ in range(2))
    first.switch_on()
    (root / SWITCH).write_text("0")
    assert second.switch_on()
    first.restore()
    second.restore()
    assert settings(root) == ("0", "1")


def test_what_was_on_before_any_tunnel_is_left_on(root: Path, journal: Path) -> None:
    (root / SWITCH).write_text("1")
    forwarding = Forwarding(6, root=root, journal=journal)
    assert not forwarding.switch_on()
    assert not forwarding.restore()
    assert settings(root) == ("1", "1")
    assert list(journal.iterdir()) == []


def test_a_note_from_before_the_host_was_started_anew_is_forgotten(
    root: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Forwarding(6, root=root, journal=journal)
    killed.switch_on()
    kill(killed)
    monkeypatch.setattr(forwarding_journal, "_boot", lambda: "another")
    assert not Forwarding(6, root=root, journal=journal).restore()
    assert settings(root) == ("1", "2")
    assert list(journal.iterdir()) == []


def note_of(**settings: object) -> bytes:
    whole: dict[str, object] = {"per_interface": {}, "redirects": None, "accept_ra": []}
    return json.dumps({"boot": forwarding_journal._boot(), "settings": whole | settings}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b"{}",
        b"[" * 5000,
        note_of(more=1),
        note_of(accept_ra=7),
        note_of(accept_ra=[None]),
        note_of(accept_ra=["net/ipv6/conf/../../../../etc/x"]),
        note_of(per_interface=[7]),
        note_of(per_interface={"net/ipv4/conf/eth0/forwarding": None}),
        note_of(redirects=1),
    ],
)
def test_a_note_that_makes_no_sense_is_told_and_forgotten(
    root: Path, journal: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    killed = Forwarding(6, root=root, journal=journal)
    killed.switch_on()
    kill(killed)
    (note,) = journal.iterdir()
    note.write_bytes(data)
    assert not Forwarding(6, root=root, journal=journal).restore()
    assert "makes no sense" in caplog.text
    assert list(journal.iterdir()) == []


def test_what_cannot_be_put_back_stays_noted(root: Path, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = Forwarding(6, root=root, journal=journal)
    killed.switch_on()
    kill(killed)

    def refuse(*_: object, **__: object) -> None:
        raise SystemSetupError("no permission")

    with monkeypatch.context() as patched:
        patched.setattr(forwarding_module, "write_sysctl", refuse)
        with pytest.raises(SystemSetupError):
            Forwarding(6, root=root, journal=journal).restore()
    assert Forwarding(6, root=root, journal=journal).restore()
    assert settings(root) == ("0", "1")


def test_a_directory_others_may_write_to_is_not_used_and_forwarding_works_without(
    root: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal.mkdir(parents=True)
    journal.chmod(0o777)
    forwarding = Forwarding(6, root=root, journal=journal)
    assert forwarding.switch_on()
    assert "others may write to it" in caplog.text
    assert list(journal.iterdir()) == []
    assert forwarding.restore()
    assert settings(root) == ("0", "1")


def test_where_nothing_was_noted_no_directory_is_made(root: Path, journal: Path) -> None:
    assert not Forwarding(6, root=root, journal=journal).restore()
    assert not journal.exists()
