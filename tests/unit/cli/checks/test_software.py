"""Versions and the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import metadata

import pytest

from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.software import check_clock, check_python, check_versions


def test_an_old_python_is_an_error() -> None:
    assert check_python((3, 10, 2))[0].level is Level.ERROR
    assert check_python((3, 11, 0))[0].level is Level.OK
    assert check_python()[0].level is Level.OK


def test_a_pinned_library_of_another_version_is_told() -> None:
    installed = {"aioquic": "1.7.3", "pyroute2": "0.9.7"}

    def version(name: str) -> str:
        try:
            return installed[name]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    wanted = ["aioquic==1.7.2", "pyroute2==0.9.7", "uvloop>=0.23", "gone==1.0", 'tests==1; extra == "test"']
    findings = check_versions(wanted, version)
    assert [finding.level for finding in findings] == [Level.WARNING, Level.OK, Level.ERROR]
    assert findings[0].remedy == "pip install aioquic==1.7.2"


def test_our_own_pins_are_looked_at_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: ["pyroute2==0.9.7"])
    assert len(check_versions()) == 1

    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert check_versions() == []


def test_a_clock_before_this_program_is_an_error() -> None:
    assert check_clock(datetime(1970, 1, 1, tzinfo=UTC))[0].level is Level.ERROR
    assert check_clock(datetime(2030, 1, 1, tzinfo=UTC))[0].level is Level.OK
