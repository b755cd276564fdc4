"""One thing a check found, how bad it is, and what to type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Level", "error", "not_checked", "note", "ok", "warning"]


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"  # worth knowing
    WARNING = "warning"  # works, but slower or not in every case
    ERROR = "error"  # keeps a tunnel from working
    NOT_CHECKED = "not checked"  # with the reason


@dataclass(frozen=True, slots=True)
class Finding:
    """subject: what was looked at. found: what was seen. remedy: what to type, or to do; empty if nothing."""

    subject: str
    level: Level
    found: str
    remedy: str = ""


def ok(subject: str, found: str) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(subject, Level.OK, found)


def note(subject: str, found: str, remedy: str = "") -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(subject, Level.NOTE, found, remedy)


def warning(subject: str, found: str, remedy: str) -> Finding:
    """Return a finding that costs speed, or fails in some cases."""
    return Finding(subject, Level.WARNING, found, remedy)


def error(subject: str, found: str, remedy: str) -> Finding:
    """Return a finding that keeps a tunnel from working."""
    return Finding(subject, Level.ERROR, found, remedy)


def not_checked(subject: str, reason: str, remedy: str = "") -> Finding:
    """Return that something could not be looked at, and why."""
    return Finding(subject, Level.NOT_CHECKED, reason, remedy)
