"""E17: the path gets narrower than the tunnel's host believes, and the host itself sends TCP into the tunnel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from netlab import iperf
from netlab.errors import CommandError
from netlab.experiment import TCP_HEADERS, Experiment, Parameter, Trial, Up
from netlab.judge import Judge
from netlab.shape import ETHERNET_HEADER

WIDE_MTU: Final = 9000
NARROW_MTU: Final = 1500
MOST_OVERHEAD: Final = 74
LAST: Final = 3.0
"""Seconds at the end of a transfer that count."""


class OwnTraffic(Experiment):
    """Links of 9000 bytes; after a while the router forwards 1500 and says so. Both directions, both families."""

    name: ClassVar[str] = "own-traffic"
    number: ClassVar[str] = "E17"
    title: ClassVar[str] = "own TCP after a move to a narrower path"
    full_runs: ClassVar[int] = 3
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "rate_mbps": Parameter(50.0, "of the link"),
        "rtt_ms": Parameter(10.0, "of the link"),
        "before": Parameter(3.0, "seconds on the wide path"),
        "after": Parameter(7.0, "seconds on the narrow path; the last three count"),
    }

    def measure(self, trial: Trial) -> None:
        """Move under a transfer, once for each direction and family inside."""
        shape = trial.shape(trial.parameters["rate_mbps"] * 1e6, trial.parameters["rtt_ms"] / 1e3)
        payload = NARROW_MTU - MOST_OVERHEAD - TCP_HEADERS[6]
        ceiling = trial.parameters["rate_mbps"] * payload / (NARROW_MTU + ETHERNET_HEADER)
        trial.metric("ceiling", ceiling, "Mbit/s")
        for version in (4, 6):
            for way in ("up", "down"):
                with trial.bring_up("path", shape=shape, mtu=WIDE_MTU) as up:
                    self._move(trial, up, version, way)

    def _move(self, trial: Trial, up: Up, version: int, way: str) -> None:
        since = trial.sample.elapsed()
        before, after = trial.parameters["before"], trial.parameters["after"]
        test = iperf.start(
            up.client,
            up.server,
            up.server_inner(version),
            seconds=before + after,
            reverse=way == "down",
            grace=8.0,
        )
        trial.wait(before)
        trial.event(f"{way}, IPv{version} inside: the path narrows to {NARROW_MTU}")
        up.path.set_mtu(NARROW_MTU)
        trial.wait(after - LAST)
        sender = test.server if way == "down" else test.client
        used = sender.cpu_seconds()
        trial.wait(LAST - 0.5)
        after_all = sender.cpu_seconds()
        if sender.code is None:  # the dead use no CPU
            trial.metric(f"sender_cpu_{way}_v{version}", (after_all - used) / (LAST - 0.5), "cores")
        try:
            flow = test.result()
        except CommandError as error:  # it hangs for good: that is the fault this is about
            trial.event(f"the transfer came to no end ({str(error).splitlines()[0]})")
            trial.metric(f"after_{way}_v{version}", 0.0, "Mbit/s")
            return
        trial.points(f"{way} IPv{version}", flow.series, since=since)
        wide = [mbps for at, mbps in flow.series if at <= before]
        narrow = [mbps for at, mbps in flow.series if at > before + after - LAST]
        trial.metric(f"before_{way}_v{version}", sum(wide) / max(1, len(wide)), "Mbit/s")
        trial.metric(f"after_{way}_v{version}", sum(narrow) / max(1, len(narrow)), "Mbit/s")

    def judge(self, judge: Judge) -> None:
        """Demand that it goes on, and that the sender does not spin."""
        for version in (4, 6):
            for way in ("up", "down"):
                name = f"{way}, IPv{version} inside"
                judge.throughput(
                    f"{name}: after the move", f"after_{way}_v{version}", ceiling="ceiling", share=0.8
                )
                judge.at_most(f"{name}: CPU of the sender", f"sender_cpu_{way}_v{version}", 0.5, "cores")
