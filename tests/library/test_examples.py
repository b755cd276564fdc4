"""Every example runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": str(EXAMPLES.parent)}


def start(name: str, *arguments: str, stdin: int | None = subprocess.DEVNULL) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    )


def test_packets_without_root() -> None:
    process = start("packets_without_root.py")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "connected as fd00:99::2" in output
    assert [f"answered ping {n}" in output for n in (1, 2, 3)] == [True] * 3


def test_embedded_server_and_events(tmp_path: Path) -> None:
    server = start("embedded_server.py", str(tmp_path / "state"), "6")
    assert server.stdout is not None
    link = server.stdout.readline()
    assert link.startswith("qtunnel://127.0.0.1:"), link
    events = start("events.py", stdin=subprocess.PIPE)
    assert events.stdin is not None
    assert events.stdout is not None
    events.stdin.write(link)
    events.stdin.close()
    lines = [events.stdout.readline() for _ in range(3)]
    assert lines[0].startswith("attempt 1: trying 127.0.0.1"), lines
    assert lines[1].startswith("up, "), lines
    assert "10.98.0.2" in lines[1]
    events.terminate()
    events.wait(timeout=20)
    events.stdout.close()
    rest, _ = server.communicate(timeout=60)
    assert server.returncode == 0, rest
    assert "guest is here: 10.98.0.2" in rest
    assert "token" not in rest


def test_every_example_is_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "embedded_server.py",
        "events.py",
        "minimal_client.py",  # needs a TUN: tests/linux/test_example_client.py
        "packets_without_root.py",
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60
