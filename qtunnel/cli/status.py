"""`qtunnel status`: what the running tunnels on this host are doing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from qtunnel.cli.command import Command
from qtunnel.cli.health_lines import as_number, health_lines
from qtunnel.cli.output import byte_count, duration, pairs, say, styled, table
from qtunnel.errors import NotRunningError, QTunnelError
from qtunnel.state.paths import ROOT_RUNTIME_DIRECTORY, control_socket, running_instances, runtime_directory

__all__ = ["ask", "path_mtu_line", "show_status", "status", "tunnels_to_ask"]


@click.command(
    cls=Command,
    short_help="Show the running tunnels of this host.",
    epilog="\b\nExamples:\n  sudo qtunnel status\n  sudo qtunnel status server --json | jq .sessions",
)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print what the tunnel said, as JSON.")
def status(name: str | None, as_json: bool) -> None:
    """Show the running tunnels of this host, or the one named NAME.

    A client is named like its profile, a server `server`, unless --name said otherwise.
    """
    runtime = runtime_directory(os.environ)
    names = tunnels_to_ask(runtime, name, command="status", only_one=as_json)
    for each in names:
        answer = ask(runtime, each)
        if as_json:
            say(json.dumps(answer, indent=2))
        else:
            show_status(each, answer)


def tunnels_to_ask(runtime: Path, name: str | None, *, command: str, only_one: bool) -> list[str]:
    """Return the tunnels of this host, or the one that was named.

    Raises: NotRunningError: there is none, or several where it must be one.
    """
    names = [name] if name is not None else _live_names(runtime)
    if not names:
        hint = f". Those of root: sudo qtunnel {command}" if _hides_those_of_root(runtime) else ""
        raise NotRunningError(f"no tunnel is running here (none has a control socket in {runtime}){hint}")
    if only_one and len(names) > 1:
        raise NotRunningError(f"several tunnels are running; name one of {', '.join(names)}")
    return names


def show_status(name: str, answer: Mapping[str, Any]) -> None:
    """Print what a tunnel said about itself. Anything may be missing: it may be another version."""
    if answer.get("role") == "server":
        _show_server(name, answer)
    else:
        _show_client(name, answer)
    for warning in _list(answer.get("warnings")):
        styled(f"  warning: {warning}", "yellow")


def _show_client(name: str, answer: Mapping[str, Any]) -> None:
    since = as_number(answer.get("since_s"))
    up = f" for {duration(since)}" if since is not None and answer.get("state") == "connected" else ""
    styled(f"{name}: client, {answer.get('state', 'state unknown')}{up}", "bold")
    server, remote = answer.get("server", "?"), answer.get("remote")
    pairs(
        {
            "server": server if remote in (None, server) else f"{server} at {remote}",
            "server name": answer.get("server_name"),
            "last outage": answer.get("last_error"),
            "device": answer.get("tun"),
            "addresses": _joined(answer.get("addresses")),
            "networks": _joined(answer.get("peer_routes")),
            "IPv6": answer.get("ipv6") if answer.get("ipv6") != "ok" else None,
            "inner MTU": answer.get("inner_mtu") or None,
            "path MTU": path_mtu_line(answer),
            "round trip": _milliseconds(answer.get("rtt_ms")),
            "received": _traffic(answer, "in"),
            "sent": _traffic(answer, "out"),
            "drops": _drops(answer.get("drops")),
            **health_lines(answer),
        }
    )


def _show_server(name: str, answer: Mapping[str, Any]) -> None:
    sessions = [session for session in _list(answer.get("sessions")) if isinstance(session, dict)]
    state = answer.get("state", f"{len(sessions)} of {answer.get('users', '?')} users connected")
    styled(f"{name}: server, {state}", "bold")
    pairs(
        {
            "listening on": _joined(answer.get("listen")),
            "device": answer.get("tun"),
            "inside": _joined(answer.get("inner_addresses")),
            "handshakes": answer.get("handshakes") or None,
            "retry": _retry(answer),
            "faults": _faults(answer.get("internal_errors")),
            "drops": _drops(answer.get("drops")),
            **health_lines(answer),
        }
    )
    if sessions:
        say()
        headers = ("user", "from", "addresses", "up", "MTU", "RTT", "received", "sent", "limited by", "drops")
        table(headers, [_session_row(session) for session in sessions])


def path_mtu_line(answer: Mapping[str, Any]) -> str | None:
    """Return the path's MTU, how it is known and since when; None where nothing is."""
    mtu, path = answer.get("path_mtu"), answer.get("path")
    if mtu is None or not isinstance(path, dict):
        return None if mtu is None else str(mtu)
    since = as_number(path.get("since_s"))
    how = _HOW.get(str(path.get("state")), str(path.get("state")))
    return f"{mtu} ({how}{'' if since is None else f', for {duration(since)}'})"


def _session_row(session: Mapping[str, Any]) -> tuple[object, ...]:
    since = as_number(session.get("since_s"))
    inside = [*_list(session.get("addresses")), *_list(session.get("prefixes"))]
    return (
        session.get("user", "?"),
        session.get("remote", "?"),
        _joined(inside),
        "-" if since is None else duration(since),
        session.get("inner_mtu", "-"),
        _milliseconds(session.get("rtt_ms")) or "-",
        byte_count(as_number(session.get("bytes_in")) or 0),
        byte_count(as_number(session.get("bytes_out")) or 0),
        session.get("limit", "-"),
        _drops(session.get("drops")) or "-",
    )


def _retry(answer: Mapping[str, Any]) -> str:
    sent = as_number(answer.get("retries_sent"))
    parts = ["on: many handshakes at once"] if answer.get("retry_active") else []
    parts += [f"{sent:,.0f} sent"] if sent else []
    return ", ".join(parts)


def _faults(count: object) -> str:
    number = as_number(count)
    return (
        f"{number:,.0f} connections ended by a fault in qtunnel; the log at debug level has it" if number else ""
    )


_HOW: Final = {
    "told": "as told",
    "base": "asking",
    "searching": "searching for more",
    "search-complete": "found by probing",
    "suspicious": "packets vanish: asking the path",
    "error": "packets of the least size vanish",
    "disabled": "not known yet",
}
"""States of path MTU discovery in words."""


def _live_names(runtime: Path) -> list[str]:
    """Return the names of tunnels that answer; one name is kept in any case, for its error to be told."""
    names = running_instances(runtime)
    if len(names) < 2:
        return names
    live = []
    for name in names:
        try:
            ask(runtime, name)
        except NotRunningError:
            continue  # left over by a crash
        except QTunnelError:
            pass
        live.append(name)
    return live


def _hides_those_of_root(runtime: Path) -> bool:
    return os.geteuid() != 0 and runtime != ROOT_RUNTIME_DIRECTORY and ROOT_RUNTIME_DIRECTORY.is_dir()


def ask(runtime: Path, name: str) -> dict[str, Any]:
    """Return what a running tunnel says of itself.

    Raises: NotRunningError, naming the tunnels that do run.
    """
    from qtunnel.aio.control import control_request

    try:
        return asyncio.run(control_request(control_socket(runtime, name), "status"))
    except NotRunningError as error:
        others = [other for other in running_instances(runtime) if other != name]
        hint = f". Others: {', '.join(others)}" if others else ""
        raise NotRunningError(f"{error}{hint}") from error


def _traffic(answer: Mapping[str, Any], direction: str) -> str | None:
    count = as_number(answer.get(f"bytes_{direction}"))
    packets = as_number(answer.get(f"packets_{direction}"))
    if count is None or packets is None:
        return None
    return f"{byte_count(count)} in {packets:,.0f} {'packet' if packets == 1 else 'packets'}"


def _drops(drops: object) -> str:
    if not isinstance(drops, dict):
        return ""
    return ", ".join(f"{reason} {count}" for reason, count in drops.items() if count)


def _milliseconds(value: object) -> str | None:
    number = as_number(value)
    return None if number is None else f"{number:.1f} ms"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _joined(value: object) -> str:
    return ", ".join(str(item) for item in _list(value))
