"""E2: no fragment and no packet over the link's MTU, under load in both directions at the computed size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from netlab import iperf
from netlab.errors import LabError
from netlab.experiment import LINK_MTU, SMALL, Experiment, Parameter, Trial, Up, families_outside
from netlab.judge import Judge
from netlab.tunnels.base import Feature

UDP_HEADERS: Final = {4: 28, 6: 48}
LEAST_LARGE: Final = 500
"""Packets larger than an acknowledgement that each direction must have carried, else nothing was loaded there."""


class FullPackets(Experiment):
    """TCP both ways, then UDP in packets of exactly the inner MTU both ways, while everything is captured."""

    name: ClassVar[str] = "full-packets"
    number: ClassVar[str] = "E2"
    title: ClassVar[str] = "fragments and oversize packets under load in both directions"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "seconds": Parameter(4.0, "of each load"),
        "flows": Parameter(2, "TCP connections in each direction"),
        "udp_mbps": Parameter(20.0, "UDP in each direction"),
        "rate_mbps": Parameter(100.0, "of the link"),
        "rtt_ms": Parameter(10.0, "of the link; acknowledgements must come late to share packets with data"),
    }

    def measure(self, trial: Trial) -> None:
        """Load each family outside."""
        shape = trial.shape(trial.parameters["rate_mbps"] * 1e6, trial.parameters["rtt_ms"] / 1e3)
        for outer in families_outside(trial):
            inside = 4 if trial.has(Feature.DEVICE) else outer  # without a tunnel they are one
            with trial.bring_up("path", outer=outer, shape=shape) as up, up.capture() as capture:
                self._tcp(trial, up, outer, inside)
                self._udp(trial, up, outer, inside)
            packets = [packet for packet in capture.packets() if packet.version == outer]
            if not packets:
                raise LabError(f"no IPv{outer} packet was seen on the wire")
            trial.metric(f"packets_v{outer}", len(packets))
            for way, outgoing in (("up", False), ("down", True)):  # seen at the router
                large = sum(packet.length > SMALL for packet in packets if packet.outgoing is outgoing)
                trial.metric(f"large_{way}_v{outer}", large)
            trial.metric(f"biggest_v{outer}", max(packet.length for packet in packets), "bytes")
            trial.metric(f"over_mtu_v{outer}", sum(packet.length > LINK_MTU for packet in packets))
            trial.metric(f"fragments_v{outer}", sum(packet.is_fragment for packet in packets))
            trial.metric(f"without_df_v{outer}", sum(not packet.dont_fragment for packet in packets))
            trial.metric(f"not_captured_v{outer}", capture.dropped)

    def _tcp(self, trial: Trial, up: Up, outer: int, inside: int) -> None:
        trial.event(f"TCP both ways, IPv{outer} outside")
        since = trial.sample.elapsed()
        seconds, flows = trial.parameters["seconds"], int(trial.parameters["flows"])
        tests = [
            iperf.start(
                up.client, up.server, up.server_inner(inside), seconds=seconds, streams=flows, reverse=reverse
            )
            for reverse in (False, True)
        ]
        for test, way in zip(tests, ("up", "down"), strict=True):
            flow = test.result()
            trial.metric(f"tcp_{way}_v{outer}", flow.mbps, "Mbit/s")
            trial.points(f"Mbit/s {way}", flow.series, since=since)

    def _udp(self, trial: Trial, up: Up, outer: int, inside: int) -> None:
        trial.event(f"UDP both ways in packets of {up.inner.mtu} bytes")
        since = trial.sample.elapsed()
        length = up.inner.mtu - UDP_HEADERS[inside]
        tests = [
            iperf.start(
                up.client,
                up.server,
                up.server_inner(inside),
                seconds=trial.parameters["seconds"],
                reverse=reverse,
                udp_rate=trial.parameters["udp_mbps"] * 1e6,
                udp_length=length,
            )
            for reverse in (False, True)
        ]
        for test, way in zip(tests, ("up", "down"), strict=True):
            flow = test.result()
            trial.metric(f"udp_{way}_v{outer}", flow.mbps, "Mbit/s")
            trial.points(f"Mbit/s {way}", flow.series, since=since)

    def judge(self, judge: Judge) -> None:
        """Allow none."""
        for outer in families_outside(judge):
            name = f"IPv{outer} outside"
            judge.at_most(f"{name}: fragments", f"fragments_v{outer}", 0)
            judge.at_most(f"{name}: packets over the MTU", f"over_mtu_v{outer}", 0)
            judge.at_most(f"{name}: packets without DF", f"without_df_v{outer}", 0)
            judge.at_most(f"{name}: biggest packet", f"biggest_v{outer}", LINK_MTU, "bytes")
            judge.at_least(f"{name}: packets looked at", f"packets_v{outer}", 1000)
            for way in ("up", "down"):
                judge.at_least(f"{name}: large ones, {way}", f"large_{way}_v{outer}", LEAST_LARGE)
            judge.at_most(f"{name}: packets missed by the capture", f"not_captured_v{outer}", 0)
