"""How a table of flags becomes options and settings."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from qtunnel.cli.command import SettingsCommand
from qtunnel.cli.flags import Flag, add_flags, origins_of, values_said

FLAGS = (
    Flag("size", "--size", "How much.", kind=int, metavar="N"),
    Flag("nets", "--net", "Which.", is_list=True, metavar="NET"),
    Flag("quic.gso", "--gso/--no-gso", "Or not.", "Transport", kind=bool),
    Flag("again", "--once", "Not again.", kind=bool, constant=False),
    Flag("kind", "--kind", "What.", kind=click.Choice(["a", "b"])),
)


def said(*arguments: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    @click.command(cls=SettingsCommand)
    @add_flags(FLAGS)
    def command(**parameters: Any) -> None:
        seen.update(values_said(FLAGS, parameters))

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen


def test_nothing_said_is_nothing() -> None:
    assert said() == {}


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--size", "0"], {"size": 0}),
        (["--net", "a", "--net", "b"], {"nets": ["a", "b"]}),
        (["--no-gso"], {"quic": {"gso": False}}),
        (["--gso"], {"quic": {"gso": True}}),
        (["--once"], {"again": False}),
        (["--kind", "b"], {"kind": "b"}),
    ],
)
def test_a_flag_says_what_a_file_would(arguments: list[str], values: dict[str, Any]) -> None:
    assert said(*arguments) == values


def test_messages_name_the_flag_as_it_is_typed() -> None:
    assert origins_of(FLAGS) == {
        "size": "--size",
        "nets": "--net",
        "quic.gso": "--gso",
        "again": "--once",
        "kind": "--kind",
    }
