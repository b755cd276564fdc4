"""Where the log goes."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from qtunnel.cli.logs import LogLevel, start_logging
from qtunnel.errors import ConfigError

ours = logging.getLogger("qtunnel.some.part")
theirs = logging.getLogger("library")


def test_life_events_go_into_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    start_logging(None, str(path))
    ours.info("connected")
    ours.debug("decided")
    theirs.info("bytes")
    theirs.warning("careful")
    text = path.read_text()
    assert "INFO qtunnel.some.part: connected" in text
    assert "careful" in text
    assert "decided" not in text
    assert "bytes" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_file_only_warnings_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(None, None)
    ours.info("connected")
    ours.warning("careful")
    assert capsys.readouterr() == ("", "qtunnel: careful\n")


def test_a_level_counts_for_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogLevel.DEBUG, None)
    ours.debug("decided")
    assert "decided" in capsys.readouterr().err
    start_logging(LogLevel.ERROR, str(tmp_path / "log"))
    ours.warning("careful")
    assert (tmp_path / "log").read_text() == ""


def test_starting_again_replaces_the_former_log(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(None, None)
    start_logging(None, None)
    ours.warning("once")
    assert capsys.readouterr().err == "qtunnel: once\n"


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log_file: .*cannot be written"):
        start_logging(None, str(tmp_path / "no" / "log"))


def test_a_full_disk_is_said_once_and_no_traceback_follows(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(None, "/dev/full")
    ours.info("connected")
    ours.info("disconnected")
    said = capsys.readouterr().err
    start_logging(None, None)  # closes the file
    assert said == "qtunnel: cannot write the log /dev/full: No space left on device\n"
    assert capsys.readouterr().err == ""
