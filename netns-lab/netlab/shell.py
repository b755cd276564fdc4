"""`lab shell TOPOLOGY`: bring a network up, say how to enter each host, and change its paths on request."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pyroute2.netlink.exceptions import NetlinkError

from netlab.errors import LabError
from netlab.network import Network
from netlab.path import Path
from netlab.shape import Shape
from netlab.topology import TOPOLOGIES, Site
from netlab.tunnels.base import Options, Tunnel

HELP: Final = """
  shape PATH rate=100 rtt=40 queue=1 loss=0 reorder=0   Mbit/s, ms, bandwidth-delay products, per cent
  mtu PATH BYTES             what the router forwards, in both directions
  silent PATH on|off         say nothing about packets that are too big
  fragments PATH drop|pass
  dead PATH on|off           lose everything without a word
  carrier PATH up|down       of the client's link
  forget PATH                the NAT's mappings
  show                       hosts and addresses again
  help
  quit                       (or Ctrl-D, Ctrl-C) take everything down"""


def run(topology: str, *, tunnel: type[Tunnel] | None, backend: str | None) -> int:
    """Bring it up, take commands, and take it down."""
    if topology not in TOPOLOGIES:
        raise LabError(f"no topology {topology}; there are: {', '.join(TOPOLOGIES)}")
    with Network(backend=backend) as network:
        site = TOPOLOGIES[topology].build(network)
        if tunnel is not None:
            _start(tunnel, site)
        _show(site)
        if sys.stdin.isatty():
            print(HELP)
            _prompt(site)
        else:
            print("\nSIGINT or SIGTERM takes it down", flush=True)
            signal.pause()
    return 0


def _start(kind: type[Tunnel], site: Site) -> None:
    kind.install()
    tunnel = kind(site, Options())
    tunnel.start_server()
    for client in site.clients.values():
        inner = tunnel.start_client(client)
        print(f"{kind.name} is up on {client.name}: {inner.ipv4}, {inner.ipv6} on {inner.device}", flush=True)


def _show(site: Site) -> None:
    for host in site.network.hosts.values():
        print(f"\n{host.name}: sudo ip netns exec {host.namespace} bash")
        for line in host.run(["ip", "-brief", "addr"]).stdout.splitlines():
            print(f"    {line}")


def _prompt(site: Site) -> None:
    while True:
        try:
            words = input("lab> ").split()
        except EOFError:
            print()
            return
        if words == ["quit"]:
            return
        try:
            obey(site, words)
        except (LabError, ValueError, NetlinkError) as error:  # the latter: what the kernel refuses
            print(f"{error}; see help")


def obey(site: Site, words: list[str]) -> None:
    """Do one command; LabError or ValueError if it makes no sense."""
    match words:
        case []:
            pass
        case ["help"]:
            print(HELP)
        case ["show"]:
            _show(site)
        case ["shape", name, *settings]:
            _path(site, name).set_shape(_shape(settings))
        case ["forget", name]:
            _path(site, name).router.forget_nat()
        case [switch, name, value]:
            _switch(_path(site, name), switch, value)
        case _:
            raise LabError(f"{' '.join(words)}: no such command, or a word is missing")


def _path(site: Site, name: str) -> Path:
    if name not in site.paths:
        raise LabError(f"no path {name}; there are: {', '.join(site.paths)}")
    return site.paths[name]


def _switch(path: Path, switch: str, value: str) -> None:
    actions: dict[str, Callable[[], None]] = {
        "mtu": lambda: path.set_mtu(int(value)),
        "silent": lambda: path.router.set_silent(_is("on", "off", value)),
        "fragments": lambda: path.router.set_drops_fragments(_is("drop", "pass", value)),
        "dead": lambda: path.router.set_dead(_is("on", "off", value)),
        "carrier": lambda: path.set_carrier(_is("up", "down", value)),
    }
    if switch not in actions:
        raise LabError(f"no command {switch}")
    actions[switch]()


def _shape(words: list[str]) -> Shape:
    settings = {"rate": 100.0, "rtt": 40.0, "queue": 1.0, "loss": 0.0, "reorder": 0.0}
    for word in words:
        key, _, value = word.partition("=")
        if key not in settings:
            raise LabError(f"no setting {key}; there are: {', '.join(settings)}")
        settings[key] = float(value)
    shape = Shape.of(settings["rate"] * 1e6, settings["rtt"] / 1e3, queue_bdp=settings["queue"])
    return replace(shape, loss=settings["loss"] / 100, reorder=settings["reorder"] / 100)


def _is(yes: str, no: str, word: str) -> bool:
    if word not in (yes, no):
        raise LabError(f"{word}: it must be {yes} or {no}")
    return word == yes
