"""`qtunnel mtu`: how large packets to a server may be, found by probing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Final

import click

from qtunnel.cli.command import Command
from qtunnel.cli.output import byte_count, say, styled
from qtunnel.errors import ConfigError

if TYPE_CHECKING:
    from qtunnel.aio.measure_mtu import MtuMeasurement

__all__ = ["mtu", "split_target"]

DEFAULT_PORT: Final = 443
INTERVAL: Final = 5.0
LIMITS: Final = {
    "path": "one byte more does not get through",
    "peer": "limited by the peer, which takes no more",
    "interface": "limited by this host's interface",
    "ceiling": "no more was tried",
}


@click.command(
    cls=Command,
    short_help="Measure the path MTU to an HTTP/3 server.",
    epilog="\b\nExamples:\n  qtunnel mtu example.com\n  qtunnel mtu -6 vpn.example.net:4433 --watch --seconds 60",
)
@click.argument("target", metavar="HOST[:PORT]")
@click.option("-4", "only4", is_flag=True, help="Over IPv4 alone.")
@click.option("-6", "only6", is_flag=True, help="Over IPv6 alone.")
@click.option(
    "--server-name", metavar="NAME", help="The name for the handshake (SNI); default: HOST, if it is one."
)
@click.option(
    "--verify", is_flag=True, help="Refuse a certificate that is not good. Nothing secret is sent anyway."
)
@click.option(
    "--timeout",
    "patience",
    type=float,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="For each address.",
)
@click.option(
    "--watch", is_flag=True, help=f"Measure again every {INTERVAL:g} s and tell each change, until Ctrl-C."
)
@click.option("--seconds", type=float, metavar="SECONDS", help="End --watch after so long.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def mtu(
    target: str,
    only4: bool,
    only6: bool,
    server_name: str | None,
    verify: bool,
    patience: float,
    watch: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Measure how large IP packets from here to HOST may be, by probing in a QUIC connection.

    It needs no root, no tunnel and no ICMP, and works with any HTTP/3 server. The other direction is the other
    end's to measure.
    """
    host, port = split_target(target)
    version = None if only4 == only6 else (4 if only4 else 6)
    asyncio.run(_run(host, port, version, server_name, verify, patience, watch, seconds, as_json))


async def _run(
    host: str,
    port: int,
    version: int | None,
    server_name: str | None,
    verify: bool,
    patience: float,
    watch: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    from qtunnel.aio.measure_mtu import measure_path_mtu

    ends = None if seconds is None else monotonic() + seconds
    known: dict[str, int] = {}
    while True:
        found = await measure_path_mtu(
            host, port, version=version, server_name=server_name, verify=verify, patience=patience
        )
        for each in found:
            before = known.get(each.remote)
            known[each.remote] = each.mtu
            if as_json and before != each.mtu:
                say(json.dumps(asdict(each)))
            elif before is None:
                show(each)
            elif before != each.mtu:
                styled(f"to {each.remote}: {each.mtu} now, {before} before", "bold")
        if not watch or (ends is not None and monotonic() + INTERVAL > ends):
            return
        await asyncio.sleep(INTERVAL)


def show(found: MtuMeasurement) -> None:
    """Print one measurement for a person."""
    how = LIMITS.get(found.limited_by, found.limited_by) if found.is_complete else "at least: the time was over"
    styled(f"to {found.remote}, IPv{found.version}: path MTU {found.mtu} ({how})", "bold")
    for step in found.steps:
        say(f"  {step.at * 1000:7.1f} ms  {step.text}")
    say(
        f"  {found.probes} probes, {byte_count(found.probe_bytes)}, of which {found.probes_lost} were lost, in "
        f"{found.round_trips:g} round trips of {found.round_trip * 1000:.1f} ms and the peer's delay"
    )


def split_target(target: str) -> tuple[str, int]:
    """Return (host, port) of HOST, HOST:PORT, ADDRESS, [ADDRESS] or [ADDRESS]:PORT.

    Raises: ConfigError, if it is none of them.
    """
    host, port = target, ""
    if target.startswith("["):
        host, bracket, rest = target[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfigError(f"{target!r} is no HOST[:PORT]; an IPv6 address with a port is [ADDRESS]:PORT")
        port = rest[1:]
    elif target.count(":") == 1:
        host, _, port = target.partition(":")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ConfigError(f"{target!r} is no HOST[:PORT]")
    return host, int(port) if port else DEFAULT_PORT
