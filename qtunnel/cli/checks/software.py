"""Whether Python, the libraries and the clock are what a tunnel needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Final

from qtunnel.cli.checks.finding import Finding, error, ok, warning

__all__ = ["check_clock", "check_python", "check_versions"]

_OLDEST_NOW: Final = datetime(2026, 11, 1, tzinfo=UTC)
"""This version did not exist before: a clock that shows less is wrong."""
_OLDEST_PYTHON: Final = (3, 11)
_EXACT: Final = re.compile(r"([A-Za-z0-9_.-]+)==([0-9][^\s;,]*)")


def check_python(version: Sequence[int] = sys.version_info[:3]) -> list[Finding]:
    """Look at the interpreter's version."""
    text = ".".join(str(number) for number in version[:3])
    if tuple(version[:2]) < _OLDEST_PYTHON:
        return [error("Python", f"{text}; 3.11 or newer is needed", "apt install python3")]
    return [ok("Python", text)]


def check_versions(
    requirements: Iterable[str] | None = None, version_of: Callable[[str], str] = metadata.version
) -> list[Finding]:
    """Compare libraries pinned to one version with what is installed. requirements: None: qtunnel's own."""
    if requirements is None:
        try:
            requirements = metadata.requires("qtunnel") or []
        except metadata.PackageNotFoundError:
            requirements = []
    findings = []
    for requirement in requirements:
        match = _EXACT.match(requirement)
        if match is None or "extra ==" in requirement:
            continue
        name, wanted = match.groups()
        try:
            found = version_of(name)
        except metadata.PackageNotFoundError:
            findings.append(error("libraries", f"{name} is not installed", f"pip install {name}=={wanted}"))
            continue
        if found != wanted:
            findings.append(
                warning(
                    "libraries",
                    f"{name} is {found}; this qtunnel was made for {wanted}, and uses private parts of it",
                    f"pip install {name}=={wanted}",
                )
            )
        else:
            findings.append(ok("libraries", f"{name} {found}"))
    return findings


def check_clock(now: datetime) -> list[Finding]:
    """Look at the clock: certificates signed by a CA are judged by it."""
    shown = now.isoformat(timespec="seconds")
    if now < _OLDEST_NOW:
        return [
            error("clock", f"it says {shown}, which is before this program was made", "timedatectl set-ntp true")
        ]
    return [ok("clock", shown)]
