"""A link of 100 Mbit/s and 40 ms with a queue of one BDP: how close TCP inside comes to what headers leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from netlab import iperf
from netlab.experiment import Experiment, Parameter, Trial
from netlab.judge import Judge

CASES = tuple((congestion, way) for congestion in ("cubic", "bbr") for way in ("up", "down"))


class Shaped(Experiment):
    """One TCP connection at a time; cubic and bbr inside, each direction, beside plain IP."""

    name: ClassVar[str] = "shaped"
    title: ClassVar[str] = "TCP over a limited link, against its computed ceiling"
    control: ClassVar[bool] = True
    full_runs: ClassVar[int] = 3
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "rate_mbps": Parameter(100.0, "of the link"),
        "rtt_ms": Parameter(40.0, "of the link"),
        "queue_bdp": Parameter(1.0, "size of the queue in bandwidth-delay products"),
        "seconds": Parameter(5.0, "of each transfer, after two that do not count"),
        "share": Parameter(0.95, "of the ceiling that is demanded"),
    }

    def measure(self, trial: Trial) -> None:
        """Do the four transfers on one network."""
        rate = trial.parameters["rate_mbps"] * 1e6
        shape = trial.shape(rate, trial.parameters["rtt_ms"] / 1e3, queue_bdp=trial.parameters["queue_bdp"])
        with trial.bring_up("path", shape=shape) as up:
            trial.metric("ceiling", up.tcp_ceiling(rate, 4), "Mbit/s")
            for congestion, way in CASES:
                trial.event(f"{congestion} {way}")
                since = trial.sample.elapsed()
                flow = iperf.run(
                    up.client,
                    up.server,
                    up.server_inner(4),
                    seconds=trial.parameters["seconds"],
                    omit=2,
                    reverse=way == "down",
                    congestion=congestion,
                )
                trial.metric(f"{congestion}_{way}", flow.mbps, "Mbit/s")
                trial.points("Mbit/s", flow.series, since=since)

    def judge(self, judge: Judge) -> None:
        """Demand most of the ceiling, unless the machine could not do it either."""
        share = judge.parameters["share"]
        for congestion, way in CASES:
            judge.throughput(f"{congestion} {way}", f"{congestion}_{way}", ceiling="ceiling", share=share)
