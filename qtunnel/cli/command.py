"""What all commands share: --debug, -h, and help whose options stand under headings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from qtunnel.cli.exit_codes import ExitCode

__all__ = ["Command", "Run", "SettingsCommand"]


@dataclass(slots=True)
class Run:
    """One run of the program. debug: show unexpected errors' tracebacks. exit_code: when no error is raised."""

    debug: bool = False
    exit_code: ExitCode = ExitCode.OK


class Command(click.Command):
    """A command that knows --debug and -h."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        attributes.setdefault(
            "context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        )
        super().__init__(*args, **attributes)
        self.params.append(
            _DebugOption(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=_set_debug,
                help="Show the traceback of an unexpected error.",
            )
        )


class SettingsCommand(Command):
    """A command with so many options that its help has them under headings, in the order they were given."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section as a list of its own."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records, col_max=28)


class _DebugOption(click.Option):
    section = "Diagnostics"


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    run = context.find_object(Run)
    if run is not None and value:
        run.debug = True
