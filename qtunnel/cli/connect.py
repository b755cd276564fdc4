"""`qtunnel connect`: bring a profile's tunnel up and keep it up."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qtunnel.cli.command import SettingsCommand
from qtunnel.cli.flag_tables import CONNECT_FLAGS
from qtunnel.cli.flags import add_flags, origins_of, values_said
from qtunnel.cli.load import ConnectOptions, Settings, build, parse_toml, read_toml_file
from qtunnel.cli.logs import start_logging
from qtunnel.cli.output import say, say_switched_off
from qtunnel.config import ClientConfig
from qtunnel.state.paths import check_name, control_socket, profile_directory, runtime_directory
from qtunnel.state.private_file import read_private
from qtunnel.state.profiles import ProfileStore

if TYPE_CHECKING:
    from qtunnel.api import TunnelClient

__all__ = ["connect", "gather"]

EXAMPLES = """\
\b
Examples:
  sudo qtunnel connect                       the only profile there is
  sudo qtunnel connect home --route default  send everything through the tunnel
  sudo qtunnel connect home --route none --route 10.1.0.0/16
  qtunnel connect home --no-tun --once       try the connection without root
"""


@click.command(cls=SettingsCommand, epilog=EXAMPLES)
@click.argument("profile", required=False)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="More settings in TOML, over the profile's; with server and token it needs none.",
)
@click.option("--lab", is_flag=True, hidden=True, help="Take the table [lab], which switches cures off.")
@add_flags(CONNECT_FLAGS)
def connect(profile: str | None, config_file: str | None, lab: bool, **said: Any) -> None:
    """Connect to a server and stay connected.

    PROFILE is the name `qtunnel join` gave; it can be left out while there is only one. The tunnel comes back
    after every outage, until Ctrl-C or SIGTERM ends it and undoes everything on this host.
    """
    os.umask(0o077)  # whatever is written from here on (logs, qlog, keys) is ours alone
    store = ProfileStore(profile_directory(os.environ))
    settings, name = gather(store, profile, config_file, said)
    if not lab:
        settings.refuse_lab()
    options, config = build(settings, (ConnectOptions, ClientConfig))
    start_logging(options.log_level, options.log_file)
    from qtunnel.cli.running import run_until_ended

    run_until_ended(_connect(config, options, check_name(options.name or name)))


def gather(
    store: ProfileStore, profile: str | None, config_file: str | None, said: dict[str, Any]
) -> tuple[Settings, str]:
    """Return the settings of profile, file and flags, in this order, and the name of the tunnel.

    Raises:
        EntryError: no such profile, or which one is not clear. ConfigError: the file cannot be read.
    """
    settings = Settings()
    file_values = {} if config_file is None else _read_file(Path(config_file))
    is_complete = "server" in file_values and "token" in file_values
    name = profile
    if name is None and not is_complete:
        name = store.only_name()
    if name is not None:
        origin = str(store.path(name))
        settings.add(parse_toml(store.read(name), origin), origin)
    if config_file is not None:
        settings.add(file_values, config_file)
    settings.add(values_said(CONNECT_FLAGS, said), "command line", origins_of(CONNECT_FLAGS))
    return settings, name or Path(config_file or "tunnel").stem[:40]


def _read_file(path: Path) -> dict[str, Any]:
    values = read_toml_file(path)
    if "token" in values:
        read_private(path)  # raises when others can read it
    return values


async def _connect(config: ClientConfig, options: ConnectOptions, name: str) -> None:
    from qtunnel import api
    from qtunnel.aio.control import ControlServer
    from qtunnel.cli.notify import notify_service_manager
    from qtunnel.cli.running import EventPrinter
    from qtunnel.linux.privileges import drop_privileges

    tunnel: TunnelClient | None = None

    async def status() -> dict[str, Any]:
        if tunnel is None:
            return {"role": "client", "name": name, "state": "starting"}
        return {"name": name, "pid": os.getpid(), **tunnel.status()}

    async with AsyncExitStack() as stack:
        path = control_socket(runtime_directory(os.environ), name)
        await stack.enter_async_context(ControlServer(path, {"status": status}))
        printer = await stack.enter_async_context(EventPrinter())
        tunnel = await stack.enter_async_context(api.connect(config, tun=options.use_tun, wait=False))
        if options.use_tun and config.host.drop_privileges:
            # At once, before a thread resolves a name: threads keep what they were started with.
            drop_privileges(("NET_ADMIN",))
        printer.follow(tunnel.events())
        say_switched_off(config.lab.switched_off())
        for warning in tunnel.status().get("warnings", ()):
            say(f"warning: {warning}")
        try:
            await tunnel.wait_connected()
            notify_service_manager("READY=1")
            await tunnel.wait_closed()
        finally:
            notify_service_manager("STOPPING=1")
