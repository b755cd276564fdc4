"""The program: its help, and every error as one message with its exit status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import qtunnel
from qtunnel.cli import main
from qtunnel.cli.exit_codes import ExitCode
from qtunnel.errors import ConfigError, QTunnelError

Runner = Callable[..., Any]

LINK = "qtunnel://a.net/?user=alice#abcdefghijklmnopqrstuvwxyz0123456789"


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(main.program, "main", fail)


def test_help_names_every_command_the_two_steps_and_the_exit_codes(run: Runner) -> None:
    outcome = run("--help")
    assert outcome.code == 0
    for word in (*main._COMMANDS, "sudo qtunnel serve", "sudo qtunnel connect", ExitCode.REFUSED.meaning):
        assert word in outcome.out


@pytest.mark.parametrize("command", main._COMMANDS)
def test_every_command_explains_itself_with_no_line_too_long(run: Runner, command: str) -> None:
    outcome = run(command, "-h")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: qtunnel {command}")
    assert max(map(len, outcome.out.splitlines())) <= 115


def test_the_version_is_the_packages(run: Runner) -> None:
    assert run("--version").out == f"qtunnel {qtunnel.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["conect"], "No such command 'conect'"),
        (["serve", "--prot", "1"], "--prot"),
        (["serve", "--port", "x"], "'x' is not a valid integer"),
        (["user", "add"], "Missing argument 'NAME'"),
    ],
)
def test_a_command_line_that_cannot_be_understood_is_status_2(
    run: Runner, arguments: list[str], words: str
) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("qtunnel: ")
    assert words in outcome.err
    assert "--help" in outcome.err


def test_no_command_shows_the_help(run: Runner) -> None:
    outcome = run()
    assert outcome.code == 2
    assert "Commands:" in outcome.err


@pytest.mark.parametrize("arguments", [["join", LINK], ["connect", LINK.upper()], ["serve", f"--name={LINK}"]])
def test_a_link_as_an_argument_is_refused_with_the_reason_and_not_repeated(
    run: Runner, arguments: list[str]
) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert "must not be an argument" in outcome.err
    assert "qtunnel user link" in outcome.err
    assert "abcdefghij" not in (outcome.out + outcome.err).lower()


def test_our_errors_are_one_message(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ConfigError("70000 is outside 1 to 65535", field="port"))
    outcome = run("serve")
    assert outcome.code == 3
    assert outcome.err == "qtunnel: port: 70000 is outside 1 to 65535\n"


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), QTunnelError("of no kind")])
def test_an_unexpected_error_is_one_line_that_says_how_to_see_more(
    run: Runner, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_with(monkeypatch, error)
    outcome = run("serve")
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
    assert "--debug" in outcome.err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, ZeroDivisionError("no"))
    monkeypatch.setenv("QTUNNEL_DEBUG", "1")
    assert main.run_command(["serve"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_with_a_log_file_the_traceback_is_there(
    run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from qtunnel.cli.logs import start_logging

    log = tmp_path / "log"
    start_logging(None, str(log))
    fail_with(monkeypatch, ZeroDivisionError("no"))
    outcome = run("serve")
    assert str(log) in outcome.err
    assert "ZeroDivisionError" in log.read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_is_status_130(run: Runner, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    fail_with(monkeypatch, error)
    assert run("join").code == 130


def test_other_errors_of_the_command_line_library_are_usage(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, click.FileError("x", "no"))
    assert run("join").code == 2


def test_a_reader_who_went_away_is_no_error() -> None:
    program = "import sys; from qtunnel.cli.main import main; sys.argv[1:] = ['--help']; main()"
    done = subprocess.run(
        ["sh", "-c", f'{sys.executable} -c "{program}" | true'], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qtunnel", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"qtunnel {qtunnel.__version__}\n"


def test_exit_status_of_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qtunnel", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
