"""`qtunnel user`: who may use this server. A running server hears of every change at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import click

from qtunnel.cli.command import Command
from qtunnel.cli.links import forget_link, hand_out_link
from qtunnel.cli.output import say, table
from qtunnel.config import IPNetwork
from qtunnel.errors import ConfigError, NotRunningError, QTunnelError, StateError
from qtunnel.state.leases import LeaseStore
from qtunnel.state.paths import control_socket, runtime_directory, state_directory
from qtunnel.state.private_file import ensure_private_directory
from qtunnel.state.server_record import ServerRecord, load_server_record
from qtunnel.state.users import UserStore

__all__ = ["user"]

_state_option = click.option(
    "--state-dir", metavar="DIR", help="The server's; default QTUNNEL_STATE_DIR or /var/lib/qtunnel."
)
_print_option = click.option(
    "--print", "print_anyway", is_flag=True, help="Print the link even if this is no terminal."
)


@click.group(short_help="Who may use this server.", context_settings={"help_option_names": ["-h", "--help"]})
def user() -> None:
    """Add, remove or list the users of this server, or give one a new join link.

    One user is one client at a time: it keeps its addresses, and a second connection replaces the first.
    """


@user.command(
    cls=Command,
    epilog="\b\nExamples:\n  sudo qtunnel user add alice\n  sudo qtunnel user add office --prefix 192.168.7.0/24",
)
@click.argument("name")
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    metavar="NET",
    help="Network that this user's client may carry, behind itself; repeatable.",
)
@_print_option
@_state_option
def add(name: str, prefixes: Sequence[str], print_anyway: bool, state_dir: str | None) -> None:
    """Add a user and hand out the join link.

    The link is shown if this is a terminal, else written to STATE/join/NAME.link. The token in it is kept nowhere
    else; for another link there is `qtunnel user link`.
    """
    state, record = _open(state_dir)
    token = _store(state).add(name, [_network(text) for text in prefixes])
    _tell_server(record)
    hand_out_link(state, record, name, token, print_anyway=print_anyway)


@user.command(cls=Command)
@click.argument("name")
@_state_option
def remove(name: str, state_dir: str | None) -> None:
    """Remove a user. Its tunnel, if it is up, ends at once."""
    state, record = _open(state_dir)
    _store(state).remove(name)
    forget_link(state, name)
    say(f"removed user {name}")
    _tell_server(record)


@user.command(cls=Command)
@click.argument("name")
@_print_option
@_state_option
def link(name: str, print_anyway: bool, state_dir: str | None) -> None:
    """Give a user a new join link. The old one, and a tunnel made with it, end at once."""
    state, record = _open(state_dir)
    token = _store(state).renew_token(name)
    _tell_server(record)
    hand_out_link(state, record, name, token, print_anyway=print_anyway)


@user.command("list", cls=Command)
@_state_option
def list_users(state_dir: str | None) -> None:
    """List the users, their networks and their inner addresses."""
    state, record = _open(state_dir)
    leases = LeaseStore(state)
    rows = [
        (
            known.name,
            ", ".join(_addresses(record, leases.get(known.name))) or "-",
            ", ".join(str(prefix) for prefix in known.prefixes) or "-",
            known.token_issued or "-",
        )
        for known in _store(state).records()
    ]
    if rows:
        table(("user", "addresses", "networks", "link made"), rows)
    else:
        say("no users")


def _open(state_dir: str | None) -> tuple[Path, ServerRecord]:
    state = state_directory(state_dir, os.environ)
    if not state.exists():
        raise StateError(f"there is no server in {state} yet. Start it once: qtunnel serve")
    ensure_private_directory(state)
    record = load_server_record(state)
    if record is None:
        raise StateError(f"there is no server in {state} yet. Start it once: qtunnel serve")
    return state, record


def _store(state: Path) -> UserStore:
    return UserStore(state, now=lambda: datetime.now(UTC))


def _network(text: str) -> IPNetwork:
    try:
        return ip_network(text)
    except ValueError:
        raise ConfigError(
            f"found {text!r}; allowed: a network without host bits, such as 10.0.0.0/8 or fd00::/8",
            field="--prefix",
        ) from None


def _addresses(record: ServerRecord, number: int | None) -> list[str]:
    if number is None:
        return []
    pools = (record.pool4, record.pool6)
    return [str(pool.network.network_address + number) for pool in pools if pool is not None]


def _tell_server(record: ServerRecord) -> None:
    from qtunnel.aio.control import control_request

    try:
        path = control_socket(runtime_directory(os.environ), record.instance)
        asyncio.run(control_request(path, "reload-users"))
    except NotRunningError:
        click.echo("no server is running here; it counts from its next start", err=True)
    except QTunnelError as error:
        raise StateError(f"it is saved, but the running server could not be told: {error}") from error
