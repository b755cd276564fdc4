"""The `qtunnel` command: which commands there are, and how every error becomes one message and an exit status."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from qtunnel.cli.command import Run
from qtunnel.cli.exit_codes import ExitCode, exit_code_for
from qtunnel.cli.logs import log_file
from qtunnel.cli.output import error_line
from qtunnel.errors import QTunnelError
from qtunnel.state.join_link import looks_like_link

__all__ = ["main", "program", "run_command"]

logger = logging.getLogger(__name__)

_COMMANDS: Final = ("serve", "join", "connect", "status", "why-mtu", "mtu", "user", "profile", "doctor")

_EPILOG: Final = """\
\b
On the server:   sudo qtunnel serve          (shows a join link)
On the client:   sudo qtunnel join           (paste it)
                 sudo qtunnel connect

\b
Exit status:
""" + "\n".join(f"  {code.value:>3}  {code.meaning}" for code in ExitCode)


class _LazyGroup(click.Group):
    """Imports a command when it is needed, so that `qtunnel status` does not load a server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order people meet them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by name."""
        if cmd_name not in _COMMANDS:
            return None
        module = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"qtunnel.cli.{module}"), module)
        assert isinstance(command, click.Command)
        return command


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from qtunnel import __version__

        click.echo(f"qtunnel {__version__}")
        context.exit()


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and exit.",
)
def program() -> None:
    """qtunnel: a VPN whose tunnel is standard HTTP/3.

    A server and its clients carry IP packets between TUN devices in QUIC datagrams (MASQUE CONNECT-IP, RFC 9484).
    """


def main() -> NoReturn:
    """Run the program with the process's arguments and exit."""
    # Importing numpy would start threads of its BLAS, which would keep the privileges that are given up later.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    code = run_command(sys.argv[1:])
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    sys.exit(int(code))


def run_command(arguments: Sequence[str]) -> ExitCode:
    """Run the program and return its exit status; every error has been told to the user."""
    run = Run(debug=os.environ.get("QTUNNEL_DEBUG", "") not in ("", "0"))
    if any(looks_like_link(argument) for argument in arguments):
        error_line(
            "a join link must not be an argument: everyone on this machine can read arguments, and your shell "
            "keeps them. Give it on standard input or as a file (qtunnel join FILE). Whoever saw this one can use "
            "it: make a new one with `qtunnel user link NAME` on the server"
        )
        return ExitCode.USAGE
    try:
        program.main(list(arguments), prog_name="qtunnel", standalone_mode=False, obj=run)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.UsageError as error:
        hint = f". See: {error.ctx.command_path} --help" if error.ctx is not None else ""
        error_line(f"{error.format_message().rstrip('.')}{hint}")
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        error_line("interrupted")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error_line(error.format_message())
        return ExitCode.USAGE
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except QTunnelError as error:
        return _report(error, run)
    except Exception as error:
        return _report_unexpected(error, run)
    return run.exit_code


def _report(error: QTunnelError, run: Run) -> ExitCode:
    code = exit_code_for(error)
    if code is ExitCode.UNEXPECTED:
        return _report_unexpected(error, run)
    logger.debug("ended by %s", type(error).__name__, exc_info=error)
    error_line(str(error))
    return code


def _report_unexpected(error: Exception, run: Run) -> ExitCode:
    if run.debug:
        import traceback

        traceback.print_exception(error)
    where = log_file()
    if where is not None:
        logging.getLogger("qtunnel").error("unexpected error", exc_info=error)
        hint = f"the traceback is in {where}"
    else:
        hint = "the traceback is above" if run.debug else "for the traceback run it again with --debug"
    error_line(f"unexpected {type(error).__name__}: {error}. This is a fault in qtunnel; {hint}")
    return ExitCode.UNEXPECTED
