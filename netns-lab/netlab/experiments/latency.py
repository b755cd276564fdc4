"""What a tunnel adds to the round trip, idle and under load in either direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from netlab import iperf
from netlab.experiment import Experiment, Parameter, Trial, Up
from netlab.judge import Judge
from netlab.pinger import Pinger

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
CASES: Final = ("idle", "up", "down")
MOST: Final = 0.9
LOADED: Final = 0.5
"""Share of the link's rate that the load must reach at least."""


class Latency(Experiment):
    """Echoes at a steady rate by a pinger of the lab's own, over a limited link with a queue of one BDP."""

    name: ClassVar[str] = "latency"
    title: ClassVar[str] = "round trips idle and under load: p50, p95, p99"
    control: ClassVar[bool] = True
    full_runs: ClassVar[int] = 3
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "rate_mbps": Parameter(100.0, "of the link"),
        "rtt_ms": Parameter(40.0, "of the link"),
        "seconds": Parameter(6.0, "of each part"),
        "per_second": Parameter(50, "echoes"),
        "idle_ms": Parameter(3.0, "that the idle median may lie above the link's"),
        "loaded_ms": Parameter(15.0, "that p95 under load may lie above the link's with a full queue"),
    }

    def measure(self, trial: Trial) -> None:
        """Ping idle, then while TCP uploads, then while it downloads."""
        shape = trial.shape(trial.parameters["rate_mbps"] * 1e6, trial.parameters["rtt_ms"] / 1e3)
        with trial.bring_up("path", shape=shape) as up:
            for case in CASES:
                self._one(trial, up, case)

    def _one(self, trial: Trial, up: Up, case: str) -> None:
        trial.event(case)
        seconds = trial.parameters["seconds"]
        load = None
        if case != "idle":
            load = iperf.start(
                up.client, up.server, up.server_inner(4), seconds=seconds + 2, reverse=case == "down"
            )
            trial.wait(2)  # until the queue is full
        with Pinger(up.client, up.server_inner(4), interval=1 / trial.parameters["per_second"]) as pinger:
            trial.wait(seconds)
        replies = pinger.replies()
        for name, share in PERCENTILES.items():
            trial.metric(f"{case}_{name}", replies.percentile(share), "ms")
        tried = replies.sent + replies.not_sent
        trial.metric(f"{case}_answered", len(replies.rtts) / tried if tried else 0.0)
        points = [(at - trial.sample.began, rtt) for at, rtt in replies.rtts]
        trial.points("RTT ms", points, since=0.0)
        if load is not None:
            trial.metric(f"{case}_mbps", load.result().mbps, "Mbit/s")
            trial.metric("rate", trial.parameters["rate_mbps"], "Mbit/s")

    def judge(self, judge: Judge) -> None:
        """Allow a little above what the link itself has."""
        rtt = judge.parameters["rtt_ms"]
        for case in CASES:
            extra = judge.parameters["idle_ms"] if case == "idle" else rtt + judge.parameters["loaded_ms"]
            name = "p50" if case == "idle" else "p95"
            judge.latency(f"{case}: {name}", f"{case}_{name}", bound=rtt + extra)
            for other in PERCENTILES:
                if other != name:
                    judge.report(f"{case}: {other}", f"{case}_{other}", "ms")
            # The round trips of a few are not those of all, and without a load none is loaded.
            judge.at_least(f"{case}: share of echoes answered", f"{case}_answered", MOST)
            if case != "idle":
                judge.throughput(f"{case}: the load", f"{case}_mbps", ceiling="rate", share=LOADED)
