"""`qtunnel why-mtu`: why packets have the size they have, told in sentences."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import click

from qtunnel.cli.command import Command
from qtunnel.cli.output import duration, say, styled
from qtunnel.cli.status import ask, path_mtu_line, tunnels_to_ask
from qtunnel.state.paths import runtime_directory

__all__ = ["show_story", "why_mtu"]

STEPS: Final = 12
"""Told by default, the newest."""


@click.command(
    "why-mtu",
    cls=Command,
    short_help="Tell why packets have the size they have.",
    epilog="\b\nExamples:\n  sudo qtunnel why-mtu\n  sudo qtunnel why-mtu server --all",
)
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help=f"Tell all, not the last {STEPS} steps.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def why_mtu(name: str | None, everything: bool, as_json: bool) -> None:
    """Tell the story of the path MTU of the running tunnels, or of the one named NAME.

    Which sizes were asked for, which of them arrived, what vanished, and what came of it; for a server, for each
    client. Sizes are those of IP packets on the path.
    """
    runtime = runtime_directory(os.environ)
    for each in tunnels_to_ask(runtime, name, command="why-mtu", only_one=as_json):
        answer = ask(runtime, each)
        peers = _peers(answer)
        if as_json:
            say(json.dumps({peer: said.get("path") for peer, said in peers.items()}, indent=2))
            continue
        if not peers:
            say(f"{each}: nobody is connected, so there is no path")
        for peer, said in peers.items():
            show_story(f"{each}, to {peer}", said, most=None if everything else STEPS)


def _peers(answer: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what is known of each path, by who is at its other end."""
    if answer.get("role") != "server":
        return {"the server": answer} if isinstance(answer.get("path"), dict) else {}
    sessions = [each for each in answer.get("sessions", []) if isinstance(each, dict)]
    return {str(each.get("user", "?")): each for each in sessions}


def show_story(title: str, said: Mapping[str, Any], *, most: int | None = None) -> None:
    """Print one path's. most: of the newest steps; None: all of them."""
    styled(f"{title}: path MTU {path_mtu_line(said) or 'not known'}", "bold")
    path = said.get("path")
    steps = path.get("why", []) if isinstance(path, dict) else []
    if not steps:
        say("  nothing was asked: the size was told (path_mtu)")
        return
    shown = steps if most is None else steps[-most:]
    if len(shown) < len(steps):
        say(f"  ({len(steps) - len(shown)} earlier steps: --all)")
    for step in shown:
        say(f"  {duration(step['ago_s']):>7} ago  {step['text']}")
    if isinstance(path, dict) and path.get("probes"):
        lost = path.get("probes_lost", 0)
        say(f"  in all {path['probes']} probes of {path.get('probe_bytes', 0):,} bytes, of which {lost} were lost")
