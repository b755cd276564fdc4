"""Exit statuses: distinct, documented, one for every error."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from qtunnel import errors
from qtunnel.cli.exit_codes import ExitCode, exit_code_for, exit_code_page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "exit-codes.md"

RAISED_BY_COMMANDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.QTunnelError)
    and kind
    not in (errors.QTunnelError, errors.DatagramTooLargeError, errors.MalformedPacketError)  # never end a command
]


@pytest.mark.parametrize("kind", RAISED_BY_COMMANDS)
def test_every_error_that_can_end_a_command_has_a_status_of_its_own_kind(kind: type[Exception]) -> None:
    assert exit_code_for(kind.__new__(kind)) not in (ExitCode.OK, ExitCode.UNEXPECTED)


def test_any_other_error_is_unexpected() -> None:
    assert exit_code_for(ValueError()) is ExitCode.UNEXPECTED


def test_every_status_has_a_meaning_and_a_remedy() -> None:
    assert len({code.meaning for code in ExitCode}) == len(ExitCode)
    assert all(code.remedy.endswith(".") for code in ExitCode)


def test_the_page_says_what_the_program_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == exit_code_page()
