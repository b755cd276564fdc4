"""The lab's command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from netlab import demo, ledger
from netlab.errors import Interrupted, LabError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = _parser().parse_args(arguments)
    # A shell's background job starts with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.geteuid() != 0:
        print("the lab makes network namespaces, which needs root: run it with sudo", file=sys.stderr)
        return 1
    try:
        return int(options.command(options))
    except (KeyboardInterrupt, Interrupted) as error:
        print(f"\n{str(error) or 'interrupted'}; everything was taken down", file=sys.stderr)
        return 130
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab",
        description="Networks of hosts and routers on this machine, to see what a tunnel does on them.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    about = "two hosts, a router, a tunnel and a host behind it: every step shown, about a minute"
    commands.add_parser("demo", help=about, description=about).set_defaults(command=lambda _: demo.run())
    about = "remove what runs that were killed have left behind; never what belongs to one that is alive"
    commands.add_parser("clean", help=about, description=about).set_defaults(command=lambda _: _clean())
    return parser


def _clean() -> int:
    removed = ledger.clean()
    for what in removed:
        print(f"removed {what}")
    print(f"{len(removed)} things removed" if removed else "nothing to remove")
    return 0
