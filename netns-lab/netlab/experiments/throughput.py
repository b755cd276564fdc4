"""How much TCP a tunnel carries on a bare veth pair, where nothing but the CPU is the limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from netlab import iperf
from netlab.errors import LabError
from netlab.experiment import Experiment, Parameter, Trial, Up
from netlab.judge import Judge

CASES = tuple((flows, way) for flows in (1, 8) for way in ("up", "down"))


class Throughput(Experiment):
    """One and eight connections, each direction; CPU time per full packet on both sides beside it."""

    name: ClassVar[str] = "throughput"
    title: ClassVar[str] = "TCP over a bare veth pair"
    runs: ClassVar[int] = 3
    full_runs: ClassVar[int] = 7
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "seconds": Parameter(4.0, "of each transfer, after one that does not count"),
        "congestion": Parameter("cubic", "controller inside"),
    }

    def measure(self, trial: Trial) -> None:
        """Do all transfers on one network."""
        with trial.bring_up("direct") as up:
            for flows, way in CASES:
                self._transfer(trial, up, flows, way)

    def _transfer(self, trial: Trial, up: Up, flows: int, way: str) -> None:
        since = trial.sample.elapsed()
        sides = {"client": up.inner.daemon, "server": up.tunnel.server}
        before = {name: side.cpu_seconds() for name, side in sides.items() if side is not None}
        flow = iperf.run(
            up.client,
            up.server,
            up.server_inner(4),
            seconds=trial.parameters["seconds"],
            omit=1,
            streams=flows,
            reverse=way == "down",
            congestion=str(trial.parameters["congestion"]),
        )
        case = f"{flows}_{way}"
        if not flow.mbps:
            raise LabError(f"nothing arrived, {flows} flows {way}")
        trial.metric(f"mbps_{case}", flow.mbps, "Mbit/s")
        trial.points("Mbit/s", flow.series, since=since)
        seconds = trial.parameters["seconds"]
        packets = flow.mbps * 1e6 / 8 * (seconds + 1) / (up.inner.mtu - 52)
        for name, side in sides.items():
            if side is not None:
                used = side.cpu_seconds() - before[name]
                trial.metric(f"us_per_packet_{name}_{case}", used / packets * 1e6, "us")

    def judge(self, judge: Judge) -> None:
        """Report; what is enough is for comparisons to say."""
        for flows, way in CASES:
            case = f"{flows}_{way}"
            name = f"{flows} flow{'s' if flows > 1 else ''} {way}"
            judge.report(name, f"mbps_{case}", "Mbit/s")
            judge.report(f"{name}: CPU, client", f"us_per_packet_client_{case}", "us/packet")
            judge.report(f"{name}: CPU, server", f"us_per_packet_server_{case}", "us/packet")
