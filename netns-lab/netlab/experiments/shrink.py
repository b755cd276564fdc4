"""E8, E10, E13: how long nothing arrives when the path becomes narrower in mid-transfer, in silence."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Final

from netlab import iperf
from netlab.capture import Capture
from netlab.errors import CommandError
from netlab.experiment import Experiment, Parameter, Trial, Up, families_outside
from netlab.host import Host
from netlab.judge import Judge
from netlab.tunnels.base import Feature
from netlab.wire import Packet

BIN: Final = 0.1
"""Seconds of a point of the series."""
NEARLY: Final = 120
"""Bytes that a packet may be smaller than the link and counts as full: the size first found is a likely one."""
MOST_OVERHEAD: Final = 78
LAST: Final = 2.0
"""Seconds at the end in which the rate counts."""
LEAST_SHARE: Final = 0.4
"""Of the link's rate, by a flow that was under way: TCP inside has lost a window and grows again."""
FLOWING: Final = 10
"""Full packets that have to get through; a few alone are probes."""
CELLS: Final = ("up", "down", "idle")


class Shrink(Experiment):
    """A router that says nothing forwards less from one moment on, under TCP in each direction, and before any."""

    name: ClassVar[str] = "shrink"
    number: ClassVar[str] = "E8"
    title: ClassVar[str] = "the path becomes narrower without ICMP: the gap, and what passes after it"
    about: ClassVar[str] = "idle: it happens before the first full packet. Also E10 and E13."
    runs: ClassVar[int] = 3
    full_runs: ClassVar[int] = 20
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "wide": Parameter(1500, "link MTU at first"),
        "narrow": Parameter(1400, "link MTU then"),
        "rate_mbps": Parameter(100.0, "of the link"),
        "rtt_ms": Parameter(40.0, "of the link"),
        "queue_bdp": Parameter(1.0, "size of the queue in bandwidth-delay products"),
        "congestion": Parameter("cubic", "of TCP inside"),
        "before": Parameter(4.0, "seconds on the wide path"),
        "after": Parameter(5.0, "seconds on the narrow path"),
    }

    def measure(self, trial: Trial) -> None:
        """Shrink under each kind of load, over each family."""
        for outer in families_outside(trial):
            for cell in CELLS:
                self._shrink(trial, outer, cell)

    def _shrink(self, trial: Trial, outer: int, cell: str) -> None:
        asked = trial.parameters
        shape = trial.shape(asked["rate_mbps"] * 1e6, asked["rtt_ms"] / 1e3, queue_bdp=asked["queue_bdp"])
        inside = 4 if trial.has(Feature.DEVICE) else outer
        with trial.bring_up("path", shape=shape, outer=outer) as up:
            path = up.path
            path.router.set_silent(True)
            path.set_mtu(int(asked["wide"]))
            trial.wait(1.0)
            is_down = cell == "down"
            receiver = up.client if is_down else up.server
            # Up is from the client; what leaves the router towards the receiver has got through.
            out, into = path.at_router_near, path.at_router_far
            if not is_down:
                out, into = into, out
            address = up.inner.address(inside) if is_down else up.server_inner(inside)
            inner_device = _device_with(receiver, str(address))
            with (
                Capture(out.host, out.device) as passed,
                Capture(into.host, into.device) as arrived,
                Capture(receiver, inner_device) as inside_packets,
            ):
                since = trial.sample.elapsed()
                shrunk, started = self._load(trial, up, cell, inside)
            self._figures(
                trial,
                f"{cell}_v{outer}",
                [each for each in passed.packets() if each.outgoing],
                [each for each in arrived.packets() if not each.outgoing],
                [each for each in inside_packets.packets() if not each.outgoing],
                shrunk,
                started,
                since,
            )
            trial.metric(f"missed_{cell}_v{outer}", passed.dropped + arrived.dropped + inside_packets.dropped)

    def _load(self, trial: Trial, up: Up, cell: str, inside: int) -> tuple[float, float]:
        """Return when the path became narrower, and when the load began; seconds since the epoch."""
        asked = trial.parameters
        narrow = int(asked["narrow"])
        before = 0.0 if cell == "idle" else asked["before"]
        if cell == "idle":
            up.path.set_mtu(narrow)
        started = time.time()
        test = iperf.start(
            up.client,
            up.server,
            up.server_inner(inside),
            seconds=before + asked["after"],
            reverse=cell == "down",
            congestion=str(asked["congestion"]),
            grace=8.0,
        )
        shrunk = started
        if before:
            trial.wait(before)
            shrunk = time.time()
            up.path.set_mtu(narrow)
            trial.event(f"{cell}: the path narrows to {narrow}")
        try:
            test.result()
        except CommandError as error:  # it hangs for good: that is the fault this is about
            trial.event(f"{cell}: the transfer came to no end ({str(error).splitlines()[0]})")
        return shrunk, started

    def _figures(
        self,
        trial: Trial,
        name: str,
        passed: Sequence[Packet],
        arrived: Sequence[Packet],
        inside: Sequence[Packet],
        shrunk: float,
        started: float,
        since: float,
    ) -> None:
        wide, full = int(trial.parameters["wide"]), int(trial.parameters["narrow"]) - NEARLY
        if name.startswith("idle"):  # nothing can be known before the first full packet
            shrunk = next((each.time for each in arrived if each.length >= wide and each.time > shrunk), shrunk)
        end = started + trial.parameters["after"] + (0 if name.startswith("idle") else trial.parameters["before"])
        trial.metric(
            f"gap_{name}", _longest_gap([each.time for each in passed if each.length > full], shrunk, end), "s"
        )
        inner = [each.time for each in inside if each.length > full - MOST_OVERHEAD]
        trial.metric(f"tcp_gap_{name}", _longest_gap(inner, shrunk, end), "s")
        through = [each.time for each in passed if each.time > shrunk + BIN and each.length > full]
        found = through[FLOWING - 1] if len(through) >= FLOWING else end
        late = sum(each.length >= wide and each.time > found + BIN for each in arrived)
        trial.metric(f"old_size_after_{name}", late)
        sizes = [each.length for each in passed if each.time > end - 1]
        trial.metric(f"size_at_the_end_{name}", max(sizes, default=0), "bytes")
        last = sum(each.length for each in passed if end - LAST < each.time <= end)
        trial.metric(f"mbps_at_the_end_{name}", last * 8 / LAST / 1e6, "Mbit/s")
        bins = Counter[int]()
        for each in passed:
            if started <= each.time <= end:
                bins[int((each.time - started) / BIN)] += each.length
        series = [(at * BIN, bins[at] * 8 / BIN / 1e6) for at in range(int((end - started) / BIN))]
        trial.points("Mbit/s arriving", series, since=since)

    def judge(self, judge: Judge) -> None:
        """Demand short gaps, no packet of the old size once found, and all of the new size used."""
        narrow = int(judge.parameters["narrow"])
        for outer in families_outside(judge):
            for cell in CELLS:
                name, key = f"{cell}, IPv{outer} outside", f"{cell}_v{outer}"
                if (figures := judge.medians(f"{name}: gap", "median 0.5 s", f"gap_{key}")) is not None:
                    judge.timing(f"{name}: gap", f"{figures[0]:.2f} s", "median 0.5 s", ok=figures[0] <= 0.5)
                judge.at_most(f"{name}: worst gap", f"gap_{key}", 1.0, "s")
                if (figures := judge.medians(f"{name}: TCP's gap", "median 0.6 s", f"tcp_gap_{key}")) is not None:
                    judge.timing(f"{name}: TCP's gap", f"{figures[0]:.2f} s", "median 0.6 s", ok=figures[0] <= 0.6)
                judge.at_most(f"{name}: packets of the old size after it", f"old_size_after_{key}", 0)
                judge.at_least(f"{name}: largest packet at the end", f"size_at_the_end_{key}", narrow, "bytes")
                if cell != "idle":
                    least = LEAST_SHARE * judge.parameters["rate_mbps"]
                    judge.at_least(f"{name}: rate at the end", f"mbps_at_the_end_{key}", least, "Mbit/s")
                judge.at_most(f"{name}: missed by the capture", f"missed_{key}", 0)


def _device_with(host: Host, address: str) -> str:
    """Return the device of a host that has an address."""
    return host.run(["ip", "-o", "addr", "show", "to", address]).stdout.split()[1]


def _longest_gap(times: Sequence[float], since: float, until: float) -> float:
    """Return the longest time between two moments at which nothing was seen, seconds."""
    moments = [since, *(each for each in times if since < each < until), until]
    return max(later - earlier for earlier, later in pairwise(moments))
