"""What all commands share."""

from __future__ import annotations

import click
from click.testing import CliRunner

from qtunnel.cli.command import Command, Run, SettingsCommand
from qtunnel.cli.flags import Flag, add_flags


@click.command(cls=SettingsCommand)
@click.argument("thing", required=False)
@add_flags((Flag("a", "--a", "First."), Flag("b", "--b", "Second.", "Transport")))
def command(**_: object) -> None:
    """Do it."""


def test_help_has_the_options_under_their_headings() -> None:
    text = CliRunner().invoke(command, ["-h"]).output
    order = [text.index(word) for word in ("Options:", "--a", "--help", "Transport:", "--b", "Diagnostics:")]
    assert order == sorted(order)
    assert text.index("--debug") > text.index("Diagnostics:")
    assert "[THING]" not in text.partition("Options:")[2]


def test_debug_is_remembered_for_the_run() -> None:
    run = Run()
    CliRunner().invoke(click.command(cls=Command)(lambda: None), ["--debug"], obj=run)
    assert run.debug
    run = Run()
    CliRunner().invoke(click.command(cls=Command)(lambda: None), [], obj=run)
    assert not run.debug
