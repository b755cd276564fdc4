"""`qtunnel join`: turn a join link into a profile."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from qtunnel.cli.command import Command
from qtunnel.cli.output import is_terminal, say
from qtunnel.errors import ConfigError
from qtunnel.state.join_link import MAX_LINK, JoinLink, parse_join_link
from qtunnel.state.paths import profile_directory
from qtunnel.state.profiles import ProfileStore, suggest_name

__all__ = ["join"]

EXAMPLES = """\
\b
Examples:
  sudo qtunnel join                     and paste the link
  sudo qtunnel join alice.link          from a file
  ssh server sudo qtunnel user link alice --print | sudo qtunnel join
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("file", required=False)
@click.option("--name", metavar="PROFILE", help="Name of the profile; default: the server's host.")
@click.option("--replace", is_flag=True, help="Replace a profile of that name.")
def join(file: str | None, name: str | None, replace: bool) -> None:
    """Store a join link as a profile.

    The link is read from FILE, or from standard input if there is none (or it is -). It is never taken from the
    command line, where everyone on this machine could read it.
    """
    link = _read_link(file)
    store = ProfileStore(profile_directory(os.environ))
    profile = name or suggest_name(link)
    path = store.save(profile, link, replace=replace)
    say(f"profile {profile}: {path}")
    say(f"connect: {'sudo ' if os.geteuid() == 0 else ''}qtunnel connect {profile}")


def _read_link(file: str | None) -> JoinLink:
    if file is not None and file != "-":
        text = _read_file(Path(file))
    elif is_terminal(sys.stdin):
        text = str(click.prompt("Join link", hide_input=True, prompt_suffix=" (not shown): "))
    else:
        text = sys.stdin.read(MAX_LINK + 2)
    return parse_join_link(_only_link(text))


def _read_file(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as opened:
            return opened.read(MAX_LINK + 2)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name cannot be used"
        raise ConfigError(f"{path} cannot be read: {reason}", field="link") from None


def _only_link(text: str) -> str:
    """Return the one line that is a link, if there is exactly one: `qtunnel user add` may have said more."""
    lines = [line.strip() for line in text.splitlines() if line.strip().lower().startswith("qtunnel:")]
    return lines[0] if len(lines) == 1 else text
