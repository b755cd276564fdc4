"""`qtunnel profile`: which tunnels this client knows."""

from __future__ import annotations

import os

import click

from qtunnel.cli.command import Command
from qtunnel.cli.load import parse_toml
from qtunnel.cli.output import say, table
from qtunnel.errors import QTunnelError
from qtunnel.state.paths import profile_directory
from qtunnel.state.profiles import ProfileStore

__all__ = ["profile"]


@click.group(
    short_help="Which tunnels this client knows.", context_settings={"help_option_names": ["-h", "--help"]}
)
def profile() -> None:
    """List or remove profiles, which `qtunnel join` makes.

    They are TOML files in /etc/qtunnel/profiles (root), ~/.config/qtunnel/profiles or QTUNNEL_PROFILE_DIR. More
    settings may be added to one (docs/configuration.md), such as: routes = ["10.1.0.0/16"]
    """


@profile.command("list", cls=Command)
def list_profiles() -> None:
    """List the profiles."""
    store = ProfileStore(profile_directory(os.environ))
    rows = [(name, _server(store, name), store.path(name)) for name in store.names()]
    if rows:
        table(("profile", "server", "file"), rows)
    else:
        say(f"no profile in {store.directory}")


@profile.command("remove", cls=Command)
@click.argument("name")
def remove_profile(name: str) -> None:
    """Remove a profile. A tunnel that is up stays up."""
    ProfileStore(profile_directory(os.environ)).remove(name)
    say(f"removed profile {name}")


def _server(store: ProfileStore, name: str) -> str:
    try:
        values = parse_toml(store.read(name), name)
    except QTunnelError as error:
        return f"({error})"
    return f"{values.get('server', '?')}:{values.get('port', 443)}"
