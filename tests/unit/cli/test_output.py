"""What people read, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from qtunnel.cli import output
from qtunnel.cli.output import as_text, byte_count, duration, error_line, is_terminal, pairs, say, styled, table


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (5.2e9, "5.2 GB")],
)
def test_byte_counts_are_short(count: float, text: str) -> None:
    assert byte_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (59.9, "59 s"), (192, "3 min 12 s"), (7500, "2 h 5 min"), (90_000, "1 d 1 h")],
)
def test_durations_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_table_is_plain_columns_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    table(("user", "sent"), [("alice", 1), ("b", "22 kB")])
    assert capsys.readouterr().out == "user   sent\nalice  1\nb      22 kB\n"


def test_a_table_on_a_terminal_has_the_same_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda *_: True)
    table(("user", "sent"), [("alice [bold]x[/]", 1)])
    styled("a line", "bold")
    error_line("broken")
    captured = capsys.readouterr()
    assert "alice [bold]x[/]" in captured.out
    assert "a line" in captured.out
    assert "qtunnel: broken" in captured.err


def test_pairs_leave_out_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    pairs({"a": 1, "missing": None, "empty": "", "longer": 0})
    assert capsys.readouterr().out == "  a       1\n  longer  0\n"


def test_what_a_peer_says_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert as_text("a\x1b[2Jb\r\x9b1mc\nd") == "a?[2Jb??1mc\nd"
    say("\x1b]0;title\x07")
    assert capsys.readouterr().out == "?]0;title?\n"


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not is_terminal(stream)
