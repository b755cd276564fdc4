"""What people read: tables and key-value lists, coloured on a terminal and plain anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "as_text",
    "byte_count",
    "duration",
    "error_line",
    "is_terminal",
    "pairs",
    "say",
    "say_switched_off",
    "styled",
    "table",
]

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_ESCAPES: Final = {code: "?" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x0A}


def as_text(value: object) -> str:
    """Return a value for people to read, control characters (which could drive a terminal) replaced."""
    return str(value).translate(_ESCAPES)


def is_terminal(stream: IO[str] | None = None) -> bool:
    """Tell whether a person is likely to look at the stream (standard output unless given)."""
    try:
        return (stream or sys.stdout).isatty()
    except ValueError:  # closed
        return False


def say(line: str = "") -> None:
    """Print one line to standard output at once, so that a pipe or a journal has it too."""
    print(as_text(line), flush=True)


def say_switched_off(cures: Sequence[str]) -> None:
    """Warn of the cures that an experiment has switched off, if there are any."""
    if cures:
        say(f"warning: for an experiment, cures are switched off: {', '.join(cures)}")


def styled(line: str, style: str) -> None:
    """Print one line, in a rich style if standard output is a terminal."""
    if is_terminal():
        Console(highlight=False).print(Text(as_text(line), style=style), soft_wrap=True)
    else:
        say(line)


def error_line(text: str) -> None:
    """Print an error to standard error, as `qtunnel: ...`; further lines are indented by what they bring."""
    line = f"qtunnel: {as_text(text)}"
    if is_terminal(sys.stderr):
        Console(stderr=True, highlight=False).print(Text(line, style="bold red"), soft_wrap=True)
    else:
        print(line, file=sys.stderr, flush=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headers; plain text in aligned columns when not on a terminal."""
    cells = [[as_text(cell) for cell in row] for row in rows]
    if is_terminal():
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for header in headers:
            drawn.add_column(header, overflow="fold")
        for row in cells:
            drawn.add_row(*(Text(cell) for cell in row))
        Console(highlight=False).print(drawn)
        return
    lines = [list(headers), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def pairs(items: Mapping[str, object] | Iterable[tuple[str, object]], *, indent: int = 2) -> None:
    """Print names and values in two columns; a value that is None or empty is left out."""
    listed = list(items.items() if isinstance(items, Mapping) else items)
    shown = [(name, as_text(value)) for name, value in listed if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{' ' * indent}{name.ljust(width)}  {value}")


def byte_count(count: float) -> str:
    """Return a number of bytes as people write it: 950 B, 1.2 kB, 34.5 MB (powers of 1000)."""
    unit = 0
    while count >= 999.95 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units: 45 s, 3 min 12 s, 2 h 5 min, 4 d 1 h."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {rest} s"
    return f"{whole} s"
