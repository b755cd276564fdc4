"""`qtunnel serve`: run a server; its first start makes everything it needs and hands out a join link."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qtunnel.cli.command import SettingsCommand
from qtunnel.cli.flag_tables import SERVE_FLAGS
from qtunnel.cli.flags import add_flags, origins_of, values_said
from qtunnel.cli.links import hand_out_link
from qtunnel.cli.load import ServeOptions, Settings, build, read_toml_file
from qtunnel.cli.logs import start_logging
from qtunnel.cli.output import say, say_switched_off
from qtunnel.config import ServerConfig, User
from qtunnel.errors import ConfigError
from qtunnel.state.identity import ServerIdentity
from qtunnel.state.leases import LeaseStore
from qtunnel.state.paths import (
    DEFAULT_SERVER_CONFIG,
    check_name,
    control_socket,
    runtime_directory,
    state_directory,
)
from qtunnel.state.private_file import FileLock, ensure_private_directory
from qtunnel.state.server_record import ServerRecord, load_server_record, save_server_record
from qtunnel.state.users import UserStore

if TYPE_CHECKING:
    from qtunnel.api import TunnelServer

__all__ = ["Startup", "prepare", "serve"]

EXAMPLES = """\
\b
Examples:
  sudo qtunnel serve                                  clients and this server reach each other
  sudo qtunnel serve --advertise 192.168.7.0/24       clients reach a network behind the server
  sudo qtunnel serve --advertise default --masquerade clients reach the internet through it
  sudo qtunnel serve --public-name vpn.example.net    what join links say
"""


@dataclass(frozen=True, slots=True)
class Startup:
    """All a server needs to start, validated and made."""

    state: Path
    options: ServeOptions
    config: ServerConfig
    identity: ServerIdentity
    record: ServerRecord
    users: UserStore


@click.command(cls=SettingsCommand, epilog=EXAMPLES)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help=f"Settings in TOML; default {DEFAULT_SERVER_CONFIG}, if it is there. Flags count more.",
)
@click.option("--lab", is_flag=True, hidden=True, help="Take the table [lab], which switches cures off.")
@add_flags(SERVE_FLAGS)
def serve(config_file: str | None, lab: bool, **said: Any) -> None:
    """Run a server.

    The first start makes a key, a certificate, address pools and a user, and hands out the user's join link: shown
    if this is a terminal, else written to STATE/join/USER.link. Later starts use what is there. Add users with
    `qtunnel user add NAME`. Ctrl-C or SIGTERM ends it and undoes everything on this host.
    """
    os.umask(0o077)  # whatever is written from here on (logs, qlog, keys) is ours alone
    settings = Settings()
    path = _config_path(config_file, os.environ)
    if path is not None:
        settings.add(read_toml_file(path), str(path))
    settings.add(values_said(SERVE_FLAGS, said), "command line", origins_of(SERVE_FLAGS))
    if not lab:
        settings.refuse_lab()
    startup = prepare(settings, os.environ)
    start_logging(startup.options.log_level, startup.options.log_file)
    taken = f"a server that keeps its state in {startup.state} runs already. See it: qtunnel status"
    with FileLock(startup.state / "server.lock", wait=0, taken=taken):
        from qtunnel.cli.running import run_until_ended

        run_until_ended(_serve(startup))


def prepare(settings: Settings, environ: Mapping[str, str]) -> Startup:
    """Make or read what the server needs in its state directory; nothing is written before all settings are good.

    Raises:
        ConfigError, StateError, SystemSetupError, NetworkOverlapError: with what to do.
    """
    from qtunnel.cli.first_start import fill_in, identity_of, record_of
    from qtunnel.linux.host_networks import host_networks

    said = settings.values.get("state_dir")
    state = state_directory(said if isinstance(said, str) else None, environ)
    fill_in(settings, state, lambda: [known.network for known in host_networks()])
    options, config = build(settings, (ServeOptions, ServerConfig))
    check_name(options.name)
    if config.port == 0:  # for programs that embed a server
        raise ConfigError("0 is any free port, which no join link could name; give 1 to 65535", field="port")
    User(name=options.first_user, token_sha256="0" * 64)  # raises for a name that cannot be one
    ensure_private_directory(state)
    identity = identity_of(config, state, datetime.now(UTC))
    record = record_of(config, options, identity, load_server_record(state))
    save_server_record(state, record)
    return Startup(state, options, config, identity, record, UserStore(state, now=lambda: datetime.now(UTC)))


async def _serve(startup: Startup) -> None:
    from qtunnel import api
    from qtunnel.aio.control import ControlServer
    from qtunnel.cli.notify import notify_service_manager
    from qtunnel.cli.running import EventPrinter
    from qtunnel.linux.privileges import drop_privileges

    server: TunnelServer | None = None

    async def status() -> dict[str, Any]:
        if server is None:
            return {"role": "server", "state": "starting"}
        return {"name": startup.options.name, "pid": os.getpid(), **server.status()}

    async def reload_users() -> dict[str, Any]:
        users = startup.users.users()
        if server is not None:
            await server.set_users(users)
        return {"users": len(users)}

    path = control_socket(runtime_directory(os.environ), startup.options.name)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ControlServer(path, {"status": status, "reload-users": reload_users}))
        printer = await stack.enter_async_context(EventPrinter())
        server = await stack.enter_async_context(
            api.serve(
                startup.config,
                identity=startup.identity,
                users=startup.users.users(),
                leases=LeaseStore(startup.state),
                tun=startup.options.use_tun,
            )
        )
        printer.follow(server.events())
        _say_ready(server, startup)
        if not startup.users.exists():
            # Only now, when the server works: a link shown by a start that failed would be lost.
            token = startup.users.add(startup.options.first_user)
            await server.set_users(startup.users.users())
            hand_out_link(startup.state, startup.record, startup.options.first_user, token)
        if startup.options.use_tun and startup.config.host.drop_privileges:
            drop_privileges(("NET_ADMIN",))
        notify_service_manager("READY=1")
        try:
            await server.wait_closed()
        finally:
            notify_service_manager("STOPPING=1")


def _say_ready(server: TunnelServer, startup: Startup) -> None:
    pools = [str(pool) for pool in (startup.config.pool4, startup.config.pool6) if pool is not None]
    say(f"serving on {', '.join(server.listening)} (UDP); inside {', '.join(pools)}")
    say_switched_off(startup.config.lab.switched_off())
    for warning in server.status().get("warnings", ()):
        say(f"warning: {warning}")


def _config_path(said: str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file to read: --config, QTUNNEL_CONFIG (empty: none), or the default one if it is there."""
    if said is not None:
        return Path(said)
    if (named := environ.get("QTUNNEL_CONFIG")) is not None:
        return Path(named) if named else None
    try:
        return DEFAULT_SERVER_CONFIG if DEFAULT_SERVER_CONFIG.is_file() else None
    except OSError as error:
        raise ConfigError(f"{DEFAULT_SERVER_CONFIG} cannot be read: {error.strerror}") from error
