"""E19: many clients on one server, half of them over IPv4 and half over IPv6: no difference between them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import ClassVar, Final

from netlab.daemon import Daemon
from netlab.experiment import Experiment, Parameter, Trial
from netlab.judge import Judge
from netlab.pings import parse_ping, ping_command
from netlab.topology import Topology
from netlab.tunnels.base import Feature, Inner, NotApplicable, Tunnel

FAMILIES: Final = (4, 6)


class ManyClients(Experiment):
    """All clients behind one access router, then one limited path; all ping at the same time, on a lossy link."""

    name: ClassVar[str] = "many-clients"
    number: ClassVar[str] = "E19"
    title: ClassVar[str] = "clients of both families on one server: loss, delay, memory, handshakes"
    needs: ClassVar[frozenset[Feature]] = frozenset({Feature.PROCESS, Feature.MANY_CLIENTS})
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "clients": Parameter(32, "of each family"),
        "echoes": Parameter(40, "of each client"),
        "loss": Parameter(0.02, "of the link, as a share, in each direction"),
        "rate_mbps": Parameter(100.0, "of the link"),
        "rtt_ms": Parameter(20.0, "of the link"),
        "handshakes": Parameter(100, "connections one after another, to count handshakes a second"),
    }

    def measure(self, trial: Trial) -> None:
        """Start the server and all clients, ping from all at once, and look at the memory."""
        count = int(trial.parameters["clients"])
        names = [f"c{number}" for number in range(2 * count)]
        topology = Topology(name="hub", about="", paths=(("a", "r"),), behind=tuple(names))
        shape = trial.shape(trial.parameters["rate_mbps"] * 1e6, trial.parameters["rtt_ms"] / 1e3)
        with trial.network(topology, shape=shape) as site:
            tunnel = trial.tunnel_on(site, mixed=True)
            tunnel.start_server()
            assert tunnel.server is not None
            empty = tunnel.server.memory_bytes()
            trial.event(f"starting {2 * count} clients")
            since = trial.sample.elapsed()
            inners = {
                family: [tunnel.start_client(site.behind[name].host, outer=family) for name in names[half::2]]
                for half, family in enumerate(FAMILIES)
            }
            trial.metric("start_seconds_per_client", (trial.sample.elapsed() - since) / (2 * count), "s")
            self._memory(trial, tunnel, inners, empty)
            site.path.set_shape(shape.but(loss=trial.parameters["loss"]))
            self._ping(trial, tunnel, inners)
            site.path.set_shape(shape)
            self._handshakes(trial, tunnel)

    def _ping(self, trial: Trial, tunnel: Tunnel, inners: Mapping[int, list[Inner]]) -> None:
        trial.event("all ping at the same time")
        echoes = int(trial.parameters["echoes"])
        running: list[tuple[int, Daemon]] = []
        for family, found in inners.items():
            for inner in found:
                command = ping_command(tunnel.server_inner(4), count=echoes, interval=0.2, wait=1.0, size=84)
                running.append((family, inner.host.start(command, name="ping")))
        sent, received = dict.fromkeys(FAMILIES, 0), dict.fromkeys(FAMILIES, 0)
        medians: dict[int, list[float]] = {family: [] for family in FAMILIES}
        for family, process in running:
            process.wait(timeout=echoes * 0.2 + 20)
            result = parse_ping(process.text(), count=echoes)
            sent[family] += result.sent
            received[family] += result.received
            medians[family] += [statistics.median(result.times)] if result.times else []
        for family in FAMILIES:
            trial.metric(f"lost_v{family}", 1 - received[family] / sent[family])
            trial.metric(f"sent_v{family}", sent[family])
            trial.metric(f"p50_v{family}", statistics.median(medians[family] or [math.inf]), "ms")
            trial.metric(f"silent_clients_v{family}", len(inners[family]) - len(medians[family]))

    def _memory(self, trial: Trial, tunnel: Tunnel, inners: Mapping[int, list[Inner]], empty: int) -> None:
        assert tunnel.server is not None
        clients = sum(len(found) for found in inners.values())
        each = [inner.daemon.memory_bytes() / 1e6 for found in inners.values() for inner in found if inner.daemon]
        trial.metric("server_mb", tunnel.server.memory_bytes() / 1e6, "MB")
        trial.metric("server_kb_per_client", (tunnel.server.memory_bytes() - empty) / 1e3 / clients, "kB")
        trial.metric("client_mb", statistics.median(each), "MB")

    def _handshakes(self, trial: Trial, tunnel: Tunnel) -> None:
        trial.event("handshakes")
        try:
            rate = tunnel.handshake_rate(int(trial.parameters["handshakes"]))
        except NotApplicable as error:
            trial.say(f"handshakes: {error}")
            return
        trial.metric("handshakes_per_second", rate, "1/s")

    def judge(self, judge: Judge) -> None:
        """Demand the same loss (within chance) and delay in both families."""
        self._judge_loss(judge)
        what, bound = "difference in median round trip", "at most 2 ms"
        delays = judge.medians(what, bound, *(f"p50_v{family}" for family in FAMILIES))
        if delays is not None:
            apart = abs(delays[0] - delays[1])
            judge.timing(what, f"{apart:.2f} ms", bound, ok=apart <= 2)
        echoes = int(judge.parameters["clients"]) * int(judge.parameters["echoes"])
        for family in FAMILIES:
            judge.at_least(f"IPv{family}: echoes sent", f"sent_v{family}", echoes)
            judge.at_most(f"IPv{family}: clients without any answer", f"silent_clients_v{family}", 0)
            judge.report(f"IPv{family}: lost", f"lost_v{family}")
            judge.report(f"IPv{family}: median round trip", f"p50_v{family}", "ms")
        judge.report("memory of the server", "server_mb", "MB")
        judge.report("memory of the server for each client", "server_kb_per_client", "kB")
        judge.report("memory of a client", "client_mb", "MB")
        judge.report("handshakes a second", "handshakes_per_second")
        judge.report("time to start a client", "start_seconds_per_client", "s")

    def _judge_loss(self, judge: Judge) -> None:
        what = "difference in loss"
        metrics = [f"{metric}_v{family}" for metric in ("lost", "sent") for family in FAMILIES]
        if (figures := judge.medians(what, "within chance", *metrics)) is None:
            return
        shares, numbers = figures[:2], figures[2:]
        # Four standard deviations of the difference of two binomials: one false alarm in 15,000.
        chance = 4 * math.sqrt(sum(p * (1 - p) / max(1, n) for p, n in zip(shares, numbers, strict=True)) + 1e-9)
        difference = abs(shares[0] - shares[1])
        judge.fact(what, f"{difference:.2%}", f"at most {chance:.2%}", difference <= chance)
