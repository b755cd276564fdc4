"""How a table of flags becomes options of a command, help under headings, and settings as a TOML file has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

__all__ = ["Flag", "SectionedOption", "add_flags", "origins_of", "values_said"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting.

    key: as in a TOML file, `quic.` or `host.` before those of QuicConfig and HostConfig. flag: `--x`, or
    `--x/--no-x` for a bool. kind: click.Choice's values are the file's. constant: what a flag without a value
    stands for. section: the heading in the help.
    """

    key: str
    flag: str
    help: str
    section: str = "Options"
    kind: type | click.Choice[str] = str
    is_list: bool = False
    constant: bool | None = None
    metavar: str | None = None

    @property
    def parameter(self) -> str:
        """Return the name click gives it."""
        return self.key.replace(".", "__")

    @property
    def spelling(self) -> str:
        """Return the flag as error messages name it."""
        return self.flag.partition("/")[0]


class SectionedOption(click.Option):
    """An option that knows under which heading of the help it belongs."""

    section = "Options"


def add_flags(flags: Sequence[Flag]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command all the flags, each None (or empty) when it was not said."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for flag in reversed(flags):
            function = click.option(flag.flag, flag.parameter, cls=_option_class(flag), **_attributes(flag))(
                function
            )
        return function

    return decorate


def values_said(flags: Sequence[Flag], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were said, as a TOML file would have given them (tables nested)."""
    values: dict[str, Any] = {}
    for flag in flags:
        value = parameters[flag.parameter]
        if value is None or value == ():
            continue
        table, _, key = flag.key.rpartition(".")
        target = values.setdefault(table, {}) if table else values
        target[key] = list(value) if flag.is_list else value
    return values


def origins_of(flags: Sequence[Flag]) -> dict[str, str]:
    """Return how each key is spelled on the command line."""
    return {flag.key: flag.spelling for flag in flags}


def _option_class(flag: Flag) -> type[SectionedOption]:
    return type("SectionedOption", (SectionedOption,), {"section": flag.section})


def _attributes(flag: Flag) -> dict[str, Any]:
    attributes: dict[str, Any] = {"help": flag.help, "default": None}
    if flag.constant is not None:
        return attributes | {"flag_value": flag.constant, "is_flag": True, "type": bool}
    if flag.kind is bool:
        return attributes
    return attributes | {"type": flag.kind, "multiple": flag.is_list, "metavar": flag.metavar}
