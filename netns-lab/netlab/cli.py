"""The lab's command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

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

INTERRUPTED = 130


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
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab",
        description="Networks of hosts and routers on this machine, to see what a tunnel does on them.",
        epilog="Exit codes: 0 every criterion holds, 1 one fails (or the lab itself), 2 inconclusive.",
    )
    parser.set_defaults(needs_root=True)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, about: str, command: object) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(command=command)
        return added

    add("demo", "a tunnel between two hosts, every step shown, in about a minute", lambda _: demo.run())
    add("list", "what experiments, topologies and tunnels there are", _list).set_defaults(needs_root=False)
    _add_run_options(add("run", "run experiments (by name or number, or `all`) and say what holds", _run))
    selftest = add("selftest", "prove that links do what their description says", _selftest)
    selftest.add_argument("--backend", choices=sorted(BACKENDS), help="default: netem, if the kernel has it")
    selftest.add_argument("--seed", type=int, default=1, metavar="N", help="of losses and reordering; default 1")
    about = "report rates instead of asserting them, for machines that are never quiet"
    selftest.add_argument("--facts-only", action="store_true", help=about)
    selftest.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    shell_parser = add("shell", "bring a topology up, say how to enter its hosts, and wait", _shell)
    shell_parser.add_argument("topology", metavar="TOPOLOGY", help=", ".join(TOPOLOGIES))
    shell_parser.add_argument("--tunnel", metavar="NAME", help="start this tunnel on it")
    shell_parser.add_argument("--backend", choices=sorted(BACKENDS), help="what shapes links")
    about = "run qtunnel and a peer in turn, and print the ratio of each pair"
    bench_parser = add("bench", about, _bench)
    bench_parser.add_argument("--peer", default="openvpn", metavar="NAME", help="default openvpn")
    bench_parser.add_argument("--runs", type=int, default=5, metavar="N", help="pairs; default 5")
    bench_parser.add_argument("--seed", type=int, default=1, metavar="N")
    bench_parser.add_argument("--backend", choices=sorted(BACKENDS), help="what shapes links")
    bench_parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    bench_parser.add_argument("--mqvpn", metavar="BINARY", help=f"of the C peer; or set {BINARY_VARIABLE}")
    add("clean", "remove what killed runs have left; never what belongs to one that is alive", _clean)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("experiments", nargs="+", metavar="EXPERIMENT", help="such as overhead or E1; `all` for all of them")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a parameter; repeatable")
    add("--tunnel", default="qtunnel", metavar="NAME[,NAME]", help="run alternately on these and compare")
    add("--runs", type=int, metavar="N", help="repeat each experiment N times")
    add("--full", action="store_true", help="repeat as often as the figures deserve")
    add("--seed", type=int, default=1, metavar="N", help="of losses and reordering; default 1")
    add("--ablate", action="append", default=[], metavar="KEY=VALUE", help="switch a cure off in the tunnel")
    add("--backend", choices=sorted(BACKENDS), help="what shapes links; default netem, if the kernel has it")
    add("--no-control", action="store_true", help="do not measure plain IP beside throughputs")
    add("--json", type=Path, metavar="FILE", help="write everything measured")
    add("--plot", type=Path, metavar="FILE.png", help="draw series and events over time")
    add("--mqvpn", metavar="BINARY", help=f"of the C peer; or set {BINARY_VARIABLE}")


def _run(options: argparse.Namespace) -> int:
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
    if options.plot is not None:
        from netlab import plot  # matplotlib is installed only when asked for

        plot.draw(reports, options.plot)
        print(f"drawn: {options.plot}")
    runner.print_summary(reports)
    return runner.verdict_of(reports).value


def _selftest(options: argparse.Namespace) -> int:
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
    runner.print_summary(reports)
    return runner.verdict_of(reports).value


def _shell(options: argparse.Namespace) -> int:
    tunnel = _tunnels(options.tunnel)[0] if options.tunnel else None
    return shell.run(options.topology, tunnel=tunnel, backend=options.backend)


def _bench(options: argparse.Namespace) -> int:
    if options.mqvpn:
        os.environ[BINARY_VARIABLE] = options.mqvpn
    peer = _tunnels(options.peer)[0]
    reports = bench.run(QTunnel, peer, runs=options.runs, seed=options.seed, backend=options.backend)
    if options.json is not None:
        runner.write_json(reports, options.json)
        print(f"written: {options.json}")
    return 0


def _list(_: argparse.Namespace) -> int:
    rows = [(each.number, each.name, each.title) for each in EXPERIMENTS.values()]
    print(table.render(("", "experiment", "what it shows"), rows))
    for experiment in EXPERIMENTS.values():
        if experiment.parameters:
            print(f"\n{experiment.name}: parameters")
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
    return [TUNNELS[name] for name in dict.fromkeys(wanted)]


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise LabError(f"{flag} {text}: it must be KEY=VALUE")
        pairs[key] = value
    return pairs
