"""Findings."""

from __future__ import annotations

from qtunnel.cli.checks.finding import Finding, Level, error, not_checked, note, ok, warning


def test_each_kind_has_its_level() -> None:
    made = [ok("s", "f"), note("s", "f"), warning("s", "f", "r"), error("s", "f", "r"), not_checked("s", "f")]
    assert [finding.level for finding in made] == list(Level)
    assert made[2] == Finding("s", Level.WARNING, "f", "r")
