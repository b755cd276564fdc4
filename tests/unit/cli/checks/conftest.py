"""A /proc of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qtunnel.cli.checks.proc_files import ProcFiles


@pytest.fixture
def proc_of(tmp_path: Path) -> Callable[..., ProcFiles]:
    """Make a /proc with these files, by path."""

    def make(files: dict[str, str] | None = None, *, capabilities: int = 0) -> ProcFiles:
        status = f"Name:\tx\nCapPrm:\t0\nCapEff:\t{capabilities:016x}\n"
        for name, text in {"self/status": status, **(files or {})}.items():
            path = tmp_path / "proc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return ProcFiles(tmp_path / "proc")

    return make
