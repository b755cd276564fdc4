"""`lab bench`: qtunnel and a peer in turn, and the ratio of each pair; a machine that drifts spoils no ratio."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from netlab import runner, table
from netlab.errors import LabError
from netlab.experiments import EXPERIMENTS
from netlab.results import Outcome
from netlab.runner import Plan, Report
from netlab.table import number
from netlab.tunnels.base import Tunnel

COMPARED: Final = ("throughput", "shaped", "small-packets", "latency")
PREFIXES: Final = ("mbps_", "us_per_packet_", "cubic_", "bbr_", "best_", "most_", "idle_p", "up_p", "down_p")
"""Metrics that mean the same for every tunnel."""


def run(ours: type[Tunnel], peer: type[Tunnel], *, runs: int, seed: int, backend: str | None) -> list[Report]:
    """Run all comparisons alternately and print the ratios, ours to the peer's."""
    plan = Plan(
        experiments=[EXPERIMENTS[name] for name in COMPARED],
        tunnels=(ours, peer),
        runs=runs,
        seed=seed,
        backend=backend,
    )
    reports = runner.run(plan)
    rows = [row for report in reports for row in _rows(report)]
    if not rows:
        raise LabError(f"{ours.name} and {peer.name} have no figure in common")
    header = ("experiment", "figure", ours.name, peer.name, "ratio", "least", "most", "pairs")
    print(f"\n{table.render(header, rows)}", flush=True)
    print(
        f"\nmedians; a ratio is {ours.name} to {peer.name}, of the two runs that followed one another", flush=True
    )
    return reports


def _rows(report: Report) -> list[Sequence[str]]:
    ours, peer = report.outcomes
    return [
        (report.experiment.name, name, *_figures(ours, peer, name))
        for name in ours.names()
        if name.startswith(PREFIXES) and ours.values(name) and peer.values(name)
    ]


def _figures(ours: Outcome, peer: Outcome, name: str) -> Sequence[str]:
    pairs = [(a, b) for a, b in zip(ours.values(name), peer.values(name), strict=False) if b]
    ratios = [a / b for a, b in pairs] or [float("nan")]
    return (
        number(statistics.median(ours.values(name))),
        number(statistics.median(peer.values(name))),
        f"{statistics.median(ratios):.2f}",
        f"{min(ratios):.2f}",
        f"{max(ratios):.2f}",
        str(len(pairs)),
    )
