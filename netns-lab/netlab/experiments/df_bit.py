"""E14: Don't Fragment on every packet outside, in the situations in which a careless socket clears it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from netlab import iperf
from netlab.experiment import Experiment, Parameter, Trial, Up
from netlab.judge import Judge
from netlab.pings import ping
from netlab.topology import Site
from netlab.tunnels.base import Feature
from netlab.wire import TCP, UDP

CACHED_MTU: Final = 1300
LOCAL_MTU: Final = 1400


def _full_pings(trial: Trial, up: Up) -> None:
    """Send full packets both ways; without a tunnel there is TCP, as its pings set DF because they are told to."""
    for version in (4,) if up.tunnel.options.by_name else (4, 6):
        if trial.has(Feature.DEVICE):
            _ping_both_ways(up, version, up.inner.mtu)
        else:
            iperf.run(up.client, up.server, up.server_inner(version), amount=100_000)


def _after_cached_mtu(trial: Trial, up: Up) -> None:
    """Let both kernels learn a small path MTU, then widen the path again and send full packets."""
    size = up.inner.mtu
    up.path.set_mtu(CACHED_MTU)
    _ping_both_ways(up, 4, size)
    route = up.client.run(["ip", "route", "get", str(up.site.server_address(4))]).stdout
    trial.metric("cached_by_client", int(f"mtu {CACHED_MTU}" in route))
    up.path.set_mtu(1500)
    _ping_both_ways(up, 4, size)


def _larger_than_device(_trial: Trial, up: Up) -> None:
    """Narrow the client's own link under a tunnel that has the old size, and send full packets."""
    size = up.inner.mtu
    up.path.set_local_mtu(LOCAL_MTU)
    _ping_both_ways(up, 4, size)
    ping(up.client, up.server_inner(4), size=600, count=3)


def _bulk(trial: Trial, up: Up) -> None:
    for reverse in (False, True):
        iperf.run(up.client, up.server, up.server_inner(4), seconds=trial.parameters["seconds"], reverse=reverse)


def _ping_both_ways(up: Up, version: int, size: int) -> None:
    ping(up.client, up.server_inner(version), size=size, count=3, wait=0.5)
    ping(up.server, up.inner.address(version), size=size, count=3, wait=0.5)


def _only_ipv4_works(site: Site) -> None:
    site.path.router.set_dead(True, version=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """One way to provoke the fault.

    by_name: the server's name has addresses of both families. is_limited: the link has a rate that a capture can
    keep up with.
    """

    name: str
    what: str
    provoke: Callable[[Trial, Up], None]
    by_name: bool = False
    is_limited: bool = False
    needs: Feature | None = Feature.DEVICE
    prepare: Callable[[Site], None] | None = None

    def applies(self, asked: Trial | Judge) -> bool:
        """Tell whether the tunnel under test can be in it."""
        return self.needs is None or asked.has(self.needs)


SITUATIONS: Final = (
    _Situation(name="native", what="server given as an address", provoke=_full_pings, needs=None),
    _Situation(
        name="by_name",
        what="a name of both families, only IPv4 works",
        provoke=_full_pings,
        by_name=True,
        needs=Feature.NAMES,
        prepare=_only_ipv4_works,
    ),
    _Situation(name="cached", what=f"after a cached path MTU of {CACHED_MTU}", provoke=_after_cached_mtu),
    _Situation(name="oversize", what="larger than the device", provoke=_larger_than_device),
    _Situation(name="segmented", what="bulk transfer (UDP_SEGMENT)", provoke=_bulk, is_limited=True, needs=None),
)


class DfBit(Experiment):
    """Five situations, IPv4 outside, both directions looked at.

    A default socket sets DF on whatever fits the path MTU it knows, so small packets prove nothing: the fault
    shows after a Packet Too Big was cached, for packets larger than the device, and for UDP_SEGMENT.
    """

    name: ClassVar[str] = "df-bit"
    number: ClassVar[str] = "E14"
    title: ClassVar[str] = "Don't Fragment on the wire: native, by name, cached path MTU, oversize, segmented"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "seconds": Parameter(2.0, "of bulk transfer in each direction"),
        "rate_mbps": Parameter(100.0, "of the link of the bulk transfer"),
        "rtt_ms": Parameter(10.0, "of the link of the bulk transfer"),
    }

    def measure(self, trial: Trial) -> None:
        """Go through the situations, each on a fresh network: the kernel remembers path MTUs for minutes."""
        limited = trial.shape(trial.parameters["rate_mbps"] * 1e6, trial.parameters["rtt_ms"] / 1e3)
        for situation in SITUATIONS:
            if not situation.applies(trial):
                trial.say(f"{situation.name}: left out, as it lacks {situation.needs and situation.needs.value}")
                continue
            shape = limited if situation.is_limited else None
            with trial.bring_up("path", shape=shape, by_name=situation.by_name, prepare=situation.prepare) as up:
                self._look(trial, up, situation)

    def _look(self, trial: Trial, up: Up, situation: _Situation) -> None:
        name = situation.name
        trial.event(situation.what)
        with up.capture() as capture:
            situation.provoke(trial, up)
        seen = capture.packets()
        packets = [packet for packet in seen if packet.version == 4 and packet.protocol in (UDP, TCP)]
        trial.metric(f"{name}_packets", len(packets))
        trial.metric(f"{name}_not_captured", capture.dropped)
        if packets:  # of none nothing can be said
            trial.metric(f"{name}_without_df", sum(not packet.dont_fragment for packet in packets))
            trial.metric(f"{name}_fragments", sum(packet.is_fragment for packet in seen))

    def judge(self, judge: Judge) -> None:
        """Allow no packet without DF and no fragment, anywhere."""
        for situation in SITUATIONS:
            if not situation.applies(judge):
                continue
            name, what = situation.name, situation.what
            # Where packets went out without DF there was no Packet Too Big to remember.
            if name == "cached" and not any(judge.outcome.values("cached_without_df")):
                judge.at_least(f"the client's kernel knew a path MTU of {CACHED_MTU}", "cached_by_client", 1)
            judge.at_most(f"{what}: packets without DF", f"{name}_without_df", 0)
            judge.at_most(f"{what}: fragments", f"{name}_fragments", 0)
            judge.at_least(f"{what}: packets looked at", f"{name}_packets", 6)
            judge.at_most(f"{what}: packets missed by the capture", f"{name}_not_captured", 0)
