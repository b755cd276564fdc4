"""The lab's command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from netlab import bench, demo, ledger, runner, shell, table
from netlab.backends import BACKENDS
from netlab.errors import LabError
from netlab.experiment import Experiment
from netlab.experiments import EXPERIMENTS, find
from netlab.selftest import SelfTest
from netlab.topology import TOPOLOGIES
from netlab.tunnels import TUNNELS
from netlab.tunnels.base import Tunnel
from netlab.tunnels.mqvpn import BINARY_VARIABLE
from netlab.tunnels.none import NoTunnel
from netlab.tunnels.qtunnel import QTunnel

INTERRUPTED: Final = 130
BACKEND_HELP: Final = "what shapes links; default: netem, if the kernel has it"
MQVPN_HELP: Final = f"the C peer's program, for the tunnels mqvpn and mqvpn-cubic; or set {BINARY_VARIABLE}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = _parser().parse_args(arguments)
    # A shell's background job starts with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if options.needs_root and os.geteuid() != 0:
            raise LabError("it makes network namespaces, which needs root: run it with sudo")
        return int(options.command(options))
    except KeyboardInterrupt as error:
        print(f"\n{str(error) or 'interrupted'}; everything was taken down", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone; nothing is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (LabError, OSError) as error:  # the latter: a full disk, a directory that went away
        print(f"lab: {error}", file=sys.stderr)
        return 1


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviations, and ends with 1 on a mistake: argparse's own 2 would mean inconclusive."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: {message}\n`{self.prog} --help` says what there is\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="lab",
        description="Networks of hosts and routers on this machine, to see what a tunnel does on them.",
        epilog="Exit codes: 0 every criterion holds, 1 one fails (or the lab itself, or a mistake on the command "
        "line), 2 inconclusive: the machine was too busy to tell. Everything but `list` needs root.",
    )
    parser.set_defaults(needs_root=True)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, about: str, command: object) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(command=command)
        return added

    add("demo", "a tunnel between two hosts, every step shown, in half a minute", lambda _: demo.run())
    add("list", "what experiments, topologies and tunnels there are", _list).set_defaults(needs_root=False)
    _add_run_options(add("run", "run experiments (by name or number, or `all`) and say what holds", _run))
    selftest = add("selftest", "prove that links do what their description says", _selftest)
    _add_common_options(selftest)
    about = "report rates instead of asserting them, for machines that are never quiet"
    selftest.add_argument("--facts-only", action="store_true", help=about)
    about = "bring a network up, say how to enter its hosts, and take commands that change its paths"
    shell_parser = add("shell", about, _shell)
    shell_parser.add_argument("topology", metavar="TOPOLOGY", help=f"{', '.join(TOPOLOGIES)} (see `lab list`)")
    shell_parser.add_argument("--tunnel", metavar="NAME", help=f"start it there: {', '.join(TUNNELS)}")
    shell_parser.add_argument("--backend", choices=sorted(BACKENDS), help=BACKEND_HELP)
    about = "run qtunnel and a peer in turn, and print the ratio of each pair"
    bench_parser = add("bench", about, _bench)
    peers = ", ".join(name for name in TUNNELS if name != QTunnel.name)
    bench_parser.add_argument("--peer", default="openvpn", metavar="NAME", help=f"{peers}; default openvpn")
    bench_parser.add_argument("--runs", type=_count, default=5, metavar="N", help="pairs of runs; default 5")
    _add_common_options(bench_parser)
    bench_parser.add_argument("--mqvpn", metavar="BINARY", help=MQVPN_HELP)
    add("clean", "remove what killed runs have left; never what belongs to one that is alive", _clean)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    about = "name or number, such as overhead or E1 (see `lab list`); `all` for all of them"
    add("experiments", nargs="+", metavar="EXPERIMENT", help=about)
    about = "change a parameter, such as seconds=10 (see `lab list`); repeatable"
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=about)
    about = f"{', '.join(TUNNELS)}; several take turns and are compared; default qtunnel"
    add("--tunnel", default="qtunnel", metavar="NAME[,NAME]", help=about)
    add("--runs", type=_count, metavar="N", help="repeat each experiment N times; default: what it says itself")
    add("--full", action="store_true", help="repeat each as often as its figures deserve: 3 to 7 times")
    about = "switch one of qtunnel's cures off, such as rcvbuf=default, to see the fault it cures; repeatable"
    add("--ablate", action="append", default=[], metavar="KEY=VALUE", help=about)
    about = "leave plain IP out, which else is measured beside rates and times: they then fail on a slow machine"
    add("--no-control", action="store_true", help=about)
    _add_common_options(parser)
    add("--plot", type=Path, metavar="FILE.png", help="draw series and events over time")
    add("--mqvpn", metavar="BINARY", help=MQVPN_HELP)


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    about = "of losses and reordering: the same one loses the same packets (emulator); default 1"
    parser.add_argument("--seed", type=int, default=1, metavar="N", help=about)
    parser.add_argument("--backend", choices=sorted(BACKENDS), help=BACKEND_HELP)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a number from 1 up, not {text!r}")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    _check_files(options.json, options.plot)
    draw = None if options.plot is None else _drawing(options.plot)
    if options.mqvpn:
        os.environ[BINARY_VARIABLE] = options.mqvpn
    plan = runner.Plan(
        experiments=_experiments(options.experiments),
        tunnels=_tunnels(options.tunnel),
        settings=_pairs("--set", options.set),
        ablation=_pairs("--ablate", options.ablate),
        runs=options.runs,
        full=options.full,
        seed=options.seed,
        backend=options.backend,
        control=not options.no_control,
    )
    reports = runner.run(plan)
    if options.json is not None:
        runner.write_json(reports, options.json)
        print(f"written: {options.json}")
    if draw is not None:
        draw(reports, options.plot)
        print(f"drawn: {options.plot}")
    runner.print_summary(reports)
    return runner.verdict_of(reports).value


def _check_files(*files: Path | None) -> None:
    """Raise LabError for a file that could not be written at the end, before an hour is spent on it."""
    for file in files:
        if file is not None and (file.is_dir() or not os.access(file.parent, os.W_OK)):
            raise LabError(f"{file} cannot be written: {'a directory' if file.is_dir() else 'no such directory'}")


def _drawing(file: Path) -> Callable[[Sequence[runner.Report], Path], None]:
    from netlab import plot  # matplotlib is installed only when asked for

    plot.check(file)
    return plot.draw


def _selftest(options: argparse.Namespace) -> int:
    _check_files(options.json)
    plan = runner.Plan(
        experiments=[SelfTest()],
        tunnels=[NoTunnel],
        settings={"assert_rates": "0"} if options.facts_only else {},
        seed=options.seed,
        backend=options.backend,
    )
    reports = runner.run(plan)
    if options.json is not None:
        runner.write_json(reports, options.json)
        print(f"written: {options.json}")
    runner.print_summary(reports)
    return runner.verdict_of(reports).value


def _shell(options: argparse.Namespace) -> int:
    tunnel = _one_tunnel("--tunnel", options.tunnel) if options.tunnel is not None else None
    return shell.run(options.topology, tunnel=tunnel, backend=options.backend)


def _bench(options: argparse.Namespace) -> int:
    _check_files(options.json)
    if options.mqvpn:
        os.environ[BINARY_VARIABLE] = options.mqvpn
    peer = _one_tunnel("--peer", options.peer)
    if peer is QTunnel:
        raise LabError("--peer qtunnel: that is what the peer is compared with")
    reports = bench.run(QTunnel, peer, runs=options.runs, seed=options.seed, backend=options.backend)
    if options.json is not None:
        runner.write_json(reports, options.json)
        print(f"written: {options.json}")
    # Bounds are not what it is about, but a tunnel that did not work has not been compared.
    return 1 if any(outcome.error for report in reports for outcome in report.outcomes) else 0


def _list(_: argparse.Namespace) -> int:
    rows = [(each.number, each.name, each.title) for each in EXPERIMENTS.values()]
    print(table.render(("", "experiment", "what it shows"), rows))
    for experiment in EXPERIMENTS.values():
        if experiment.parameters:
            print(f"\n{experiment.name}: parameters (--set NAME=VALUE), defaults")
            rows = [(f"  {n}", str(p.default), p.about) for n, p in experiment.parameters.items()]
            print("\n".join(table.render(("  name", "default", "about"), rows).splitlines()[2:]))
    print("\n" + table.render(("topology", "hosts"), [(each.name, each.about) for each in TOPOLOGIES.values()]))
    print("\n" + table.render(("tunnel", "what it is"), [(each.name, each.about) for each in TUNNELS.values()]))
    return 0


def _clean(_: argparse.Namespace) -> int:
    removed = ledger.clean()
    for what in removed:
        print(f"removed {what}")
    print(f"{len(removed)} things removed" if removed else "nothing to remove")
    return 0


def _experiments(names: Sequence[str]) -> list[Experiment]:
    if "all" in names:
        return list(EXPERIMENTS.values())
    found = [(name, find(name)) for name in names]
    if unknown := [name for name, experiment in found if experiment is None]:
        raise LabError(f"no experiment {', '.join(unknown)}; `lab list` shows them all")
    return [experiment for _, experiment in found if experiment is not None]


def _tunnels(names: str) -> list[type[Tunnel]]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in TUNNELS]:
        raise LabError(f"no tunnel {', '.join(unknown)}; there are: {', '.join(TUNNELS)}")
    if not wanted:
        raise LabError(f"no tunnel is named; there are: {', '.join(TUNNELS)}")
    return [TUNNELS[name] for name in dict.fromkeys(wanted)]


def _one_tunnel(flag: str, names: str) -> type[Tunnel]:
    found = _tunnels(names)
    if len(found) > 1:
        raise LabError(f"{flag} {names}: one tunnel at a time")
    return found[0]


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise LabError(f"{flag} {text}: it must be KEY=VALUE")
        pairs[key] = value
    return pairs
