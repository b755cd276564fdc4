"""What an experiment is: parameters, one measurement, and how the figures are judged."""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from netlab import iperf, machine
from netlab.addresses import IPAddress
from netlab.capture import Capture
from netlab.errors import LabError
from netlab.host import Host
from netlab.judge import Judge
from netlab.network import LinkEnd, Network
from netlab.path import Path
from netlab.results import Sample, Value
from netlab.shape import ETHERNET_HEADER, Shape
from netlab.table import number
from netlab.topology import TOPOLOGIES, Site, Topology
from netlab.tunnels.base import Feature, Inner, NotApplicable, Options, Tunnel

LINK_MTU: Final = 1500
LAB_DROPS: Final = "dropped_by_the_lab_"
"""Metrics of packets lost because the back end did not keep up begin with this."""
CEILING_BYTES: Final = 1_000_000
SMALL: Final = 600
"""Size of a packet on the wire, in bytes, up to which it is no full one."""
TCP_HEADERS: Final = {4: 52, 6: 72}
"""IP and TCP header with the time stamp option, by IP version."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A setting of an experiment, changed with --set NAME=VALUE; its type is the default's."""

    default: float | int | str
    about: str

    def parse(self, text: str) -> float | int | str:
        """Return the value of a text, in the default's type; ValueError if it is none, negative or infinite."""
        value = type(self.default)(text)
        if not isinstance(value, str) and not 0 <= value < math.inf:
            raise ValueError(f"{text} is negative or not finite")
        return value


@dataclass(slots=True, kw_only=True)
class Up:
    """A topology with the tunnel under test on it, and its first client."""

    site: Site
    tunnel: Tunnel
    inner: Inner

    @property
    def client(self) -> Host:
        """The first client."""
        return self.inner.host

    @property
    def server(self) -> Host:
        """The server."""
        return self.site.server

    @property
    def path(self) -> Path:
        """The first client's path."""
        return self.site.path

    def server_inner(self, version: int) -> IPAddress:
        """Return the server's address inside the tunnel."""
        return self.tunnel.server_inner(version)

    @property
    def wire(self) -> LinkEnd:
        """Where packets are seen as they are on the client's link: its far end."""
        return self.site.direct.b if self.site.direct is not None else self.path.at_router_near

    def capture(self) -> Capture:
        """Return a capture on the client's link; what leaves the client is not outgoing there."""
        return Capture(self.wire.host, self.wire.device)

    def tcp_ceiling(self, rate_bps: float, version: int) -> float:
        """Return the Mbit/s of TCP payload that headers leave of a rate, as seen in a short upload of its own.

        It is the payload of a full TCP packet, by the size of the packets that are most common on the wire.
        """
        with self.capture() as capture:
            flow = iperf.run(self.client, self.server, self.server_inner(version), amount=CEILING_BYTES)
        sizes = [packet.length for packet in capture.packets() if not packet.outgoing and packet.length > SMALL]
        if not sizes or flow.mss is None:
            raise LabError("no full packet on the wire to compute the ceiling from")
        return rate_bps / 1e6 * flow.mss / (statistics.mode(sizes) + ETHERNET_HEADER)


class Trial:
    """One run of an experiment on one tunnel: brings networks up and takes down what was measured."""

    def __init__(
        self,
        *,
        parameters: Mapping[str, Any],
        tunnel: type[Tunnel],
        sample: Sample,
        backend: str | None,
        ablation: Mapping[str, str],
    ) -> None:
        self.parameters = parameters
        self.sample = sample
        self.seed = sample.seed
        self.backend_used = ""
        self._tunnel = tunnel
        self._backend = backend
        self._ablation = dict(ablation)

    def say(self, text: str) -> None:
        """Show progress."""
        print(f"      {self.sample.tunnel}: {text}", flush=True)

    def metric(self, name: str, value: Value, unit: str = "") -> None:
        """Keep a figure (units belong in its name) and show it."""
        self.sample.metrics[name] = value
        shown = number(value) if isinstance(value, int | float) else str(value)
        self.say(f"{name} = {shown} {unit}".rstrip())

    def event(self, text: str) -> None:
        """Keep that something happened now, and show it."""
        at = self.sample.elapsed()
        self.sample.events.append((at, text))
        self.say(f"{at:6.2f} s: {text}")

    def wait(self, seconds: float) -> None:
        """Let time pass, while what was started goes on."""
        time.sleep(seconds)

    def points(self, name: str, points: list[tuple[float, float]], *, since: float) -> None:
        """Keep a series; since: seconds of the run at which its own time begins."""
        self.sample.series.setdefault(name, []).extend((since + at, value) for at, value in points)

    def shape(self, rate_bps: float, rtt_s: float, **settings: Any) -> Shape:
        """Return a link's shape with this run's seed; LabError if there can be no such link."""
        try:
            return Shape.of(rate_bps, rtt_s, **settings).but(seed=self.seed)
        except ValueError as error:  # of parameters given by --set
            raise LabError(f"there is no such link: {error}") from error

    @contextmanager
    def network(
        self, topology: str | Topology, *, shape: Shape | None = None, mtu: int = LINK_MTU
    ) -> Iterator[Site]:
        """Build a topology (links of mtu) without any tunnel, shaped in both directions of each path."""
        found = TOPOLOGIES[topology] if isinstance(topology, str) else topology
        self.sample.calibration = machine.calibrate()
        with Network(backend=self._backend) as network:
            site = found.build(network, mtu=mtu)
            for number, path in enumerate(site.paths.values() if shape is not None else ()):
                assert shape is not None
                path.set_shape(shape.but(seed=shape.seed + 10 * number))
                self.backend_used = network.backend_name
            yield site
            for path in site.paths.values() if network.backend_name else ():
                missed = network.backend(path.router_host).unintended_drops(path.router_host)
                if missed:
                    self.metric(f"{LAB_DROPS}{path.name}", missed, "packets")
                    self.say("WARNING: the back end did not keep up; this run proves nothing")

    @contextmanager
    def bring_up(
        self,
        topology: str | Topology,
        *,
        shape: Shape | None = None,
        mtu: int = LINK_MTU,
        outer: int = 4,
        path_mtu: int | None = None,
        by_name: bool = False,
        ablation: Mapping[str, str] | None = None,
        prepare: Callable[[Site], None] | None = None,
    ) -> Iterator[Up]:
        """Build a topology, prepare it, and start the tunnel on it; all is gone at the end."""
        with ExitStack() as stack:
            site = stack.enter_context(self.network(topology, shape=shape, mtu=mtu))
            tunnel = self.tunnel_on(site, outer=outer, path_mtu=path_mtu, by_name=by_name, ablation=ablation)
            if prepare is not None:
                prepare(site)
            tunnel.start_server()
            inner = tunnel.start_client(site.client)
            self.event(f"up on {site.name}, IPv{outer} outside, inner MTU {inner.mtu}")
            yield Up(site=site, tunnel=tunnel, inner=inner)

    def tunnel_on(
        self,
        site: Site,
        *,
        outer: int = 4,
        path_mtu: int | None = None,
        by_name: bool = False,
        mixed: bool = False,
        ablation: Mapping[str, str] | None = None,
    ) -> Tunnel:
        """Return the tunnel under test, not started yet; NotApplicable if it lacks what is asked for."""
        switched_off = self._ablation | dict(ablation or {})
        if outer == 6:
            self.need(Feature.IPV6_OUTSIDE)
        if by_name:
            self.need(Feature.NAMES)
        if switched_off:
            self.need(Feature.ABLATIONS)
        options = Options(outer=outer, path_mtu=path_mtu, by_name=by_name, mixed=mixed, ablation=switched_off)
        return self._tunnel(site, options)

    def has(self, feature: Feature) -> bool:
        """Tell whether the tunnel under test has a feature."""
        return feature not in self._tunnel.lacks

    def need(self, feature: Feature) -> None:
        """Raise NotApplicable if the tunnel under test lacks a feature."""
        if not self.has(feature):
            raise NotApplicable(f"{self._tunnel.name} lacks {feature.value}")


def families_outside(asked: Trial | Judge) -> tuple[int, ...]:
    """Return the IP versions that the tunnel under test can have outside."""
    return (4, 6) if asked.has(Feature.IPV6_OUTSIDE) else (4,)


class Experiment(ABC):
    """One experiment. A subclass is data, a measurement and a judgement; it takes about a page."""

    name: ClassVar[str]
    number: ClassVar[str] = ""
    title: ClassVar[str]
    about: ClassVar[str] = ""
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    needs: ClassVar[frozenset[Feature]] = frozenset()
    runs: ClassVar[int] = 1
    full_runs: ClassVar[int] = 5
    control: ClassVar[bool] = False
    """Whether plain IP is measured beside each run, as the figures depend on how quiet the machine is."""

    @abstractmethod
    def measure(self, trial: Trial) -> None:
        """Do one run; what comes out goes into trial.metric(). NotApplicable if the tunnel cannot do it."""

    @abstractmethod
    def judge(self, judge: Judge) -> None:
        """Compare all runs on one tunnel with what must hold."""
