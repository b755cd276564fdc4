"""`lab selftest`: does a link do what its description says? Proved with plain IP, for whichever back end there is.

Packet facts and delays are asserted; throughput is, too, unless the machine is noisy: then it is inconclusive.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Mapping
from typing import ClassVar, Final

from netlab import iperf
from netlab.capture import Capture
from netlab.errors import LabError
from netlab.experiment import LINK_MTU, Experiment, Parameter, Trial
from netlab.judge import Judge
from netlab.pinger import Pinger
from netlab.pings import ping
from netlab.shape import ETHERNET_HEADER, Shape
from netlab.topology import Site
from netlab.wire import UDP

UDP_PAYLOAD: Final = 1472
TCP_PAYLOAD: Final = 1448
SMALL_MTU: Final = 1400
SIGMAS: Final = 4
"""Standard deviations a binomial count may be off: one false alarm in 15,000."""
STREAM: Final = 4000
LOSS: Final = 0.05
REORDER: Final = 0.25


class SelfTest(Experiment):
    """Everything a link promises, measured from outside."""

    name: ClassVar[str] = "selftest"
    title: ClassVar[str] = "do links do what their description says?"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "rate_mbps": Parameter(100.0, "of the link"),
        "rtt_ms": Parameter(40.0, "of the link"),
        "tcp_runs": Parameter(3, "of which the median counts"),
        "seconds": Parameter(5.0, "of each transfer"),
        "assert_rates": Parameter(1, "0: rates and CPU are only reported, for machines that are never quiet"),
    }

    def measure(self, trial: Trial) -> None:
        """Go through delay, rate, TCP, loss, reordering, change under way, several paths, and sizes."""
        rate, rtt = trial.parameters["rate_mbps"] * 1e6, trial.parameters["rtt_ms"] / 1e3
        shape = trial.shape(rate, rtt)
        with trial.network("path", shape=shape) as site:
            self._delay(trial, site)
            self._rate(trial, site, rate)
            self._tcp(trial, site)
            self._chance(trial, site, shape)
            self._change(trial, site, shape)
        self._several(trial, shape)
        with trial.network("path") as site:
            self._sizes(trial, site)

    def _delay(self, trial: Trial, site: Site) -> None:
        for version in (4, 6):
            with Pinger(site.client, site.server_address(version), interval=0.02) as pinger:
                trial.wait(4)
            replies = pinger.replies()
            trial.metric(f"p50_v{version}", replies.percentile(0.5), "ms")
            trial.metric(f"p95_v{version}", replies.percentile(0.95), "ms")

    def _rate(self, trial: Trial, site: Site, rate: float) -> None:
        """Offer 120 % and count what leaves the router, by the kernel's times, once the queue is full."""
        seconds = trial.parameters["seconds"]
        with Capture(site.server, site.path.at_server.device) as capture:
            iperf.run(
                site.client,
                site.server,
                site.server_address(4),
                seconds=seconds,
                udp_rate=1.2 * rate * UDP_PAYLOAD / (LINK_MTU + ETHERNET_HEADER),
                udp_length=UDP_PAYLOAD,
            )
        packets = [p for p in capture.packets() if p.protocol == UDP and not p.outgoing and p.length == LINK_MTU]
        window = [p for p in packets if packets[0].time + 1 <= p.time <= packets[0].time + seconds - 0.5]
        if len(window) < 2:
            raise LabError(f"{len(packets)} full packets arrived, too few to see a rate")
        span = window[-1].time - window[0].time
        frames = sum(p.length + ETHERNET_HEADER for p in window[1:])
        trial.metric("udp_rate", frames * 8 / span / 1e6, "Mbit/s of L3+14")
        trial.metric("udp_not_captured", capture.dropped)

    def _tcp(self, trial: Trial, site: Site) -> None:
        backend = site.network.backend(site.path.router_host)
        results = []
        for number in range(int(trial.parameters["tcp_runs"])):
            cpu, began = backend.cpu_seconds(), time.monotonic()
            flow = iperf.run(
                site.client,
                site.server,
                site.server_address(4),
                seconds=trial.parameters["seconds"],
                omit=2,
            )
            results.append(flow.mbps)
            trial.say(f"TCP {number + 1}: {flow.mbps:.1f} Mbit/s")
            after = backend.cpu_seconds()
            if cpu is not None and after is not None:
                trial.metric("emulator_cpu", (after - cpu) / (time.monotonic() - began), "cores")
        trial.metric("tcp", statistics.median(results), "Mbit/s")
        trial.metric("tcp_ceiling", _tcp_ceiling(trial), "Mbit/s")

    def _chance(self, trial: Trial, site: Site, shape: Shape) -> None:
        """Count lost and reordered packets of a slow stream; the queue never fills."""
        site.path.set_shape(shape.but(loss=LOSS), shape)
        sent, arrived, _ = self._stream(site)
        trial.metric("sent_with_loss", sent)
        trial.metric("lost", sent - arrived)
        site.path.set_shape(shape.but(reorder=REORDER), shape)
        sent, arrived, overtook = self._stream(site)
        trial.metric("sent_with_reordering", sent)
        trial.metric("lost_with_reordering", sent - arrived)
        trial.metric("overtook", overtook)
        site.path.set_shape(shape, shape)

    def _stream(self, site: Site) -> tuple[int, int, int]:
        """Send STREAM packets of 200 bytes in two seconds; return how many left, arrived, and overtook others."""
        device = site.path.at_client.device
        with Capture(site.client, device) as left, Capture(site.server, site.path.at_server.device) as right:
            iperf.run(
                site.client,
                site.server,
                site.server_address(4),
                seconds=2,
                udp_rate=STREAM / 2 * 200 * 8,
                udp_length=200,
            )
        # iperf3 numbers its datagrams from 1, in the third word of the payload.
        out = [p.head[36:40] for p in left.packets() if p.protocol == UDP and p.outgoing and p.length == 228]
        back = [p.head[36:40] for p in right.packets() if p.protocol == UDP and not p.outgoing and p.length == 228]
        numbers = [int.from_bytes(number) for number in back]
        overtook = sum(1 for index, number in enumerate(numbers) if number > min(numbers[index:], default=number))
        return len(out), len(back), overtook

    def _change(self, trial: Trial, site: Site, shape: Shape) -> None:
        """Halve the delay while packets are under way: none may be lost, and it must work at once."""
        with Pinger(site.client, site.server_address(4), interval=0.02) as pinger:
            trial.wait(1)
            trial.event("delay halved")
            site.path.set_shape(shape.but(delay_s=shape.delay_s / 2))
            changed = time.time()
            trial.wait(2)
        replies = pinger.replies()
        later = [rtt for at, rtt in replies.rtts if at > changed + 0.2]
        trial.metric("lost_in_change", replies.lost + replies.not_sent)
        trial.metric("p50_after_change", statistics.median(later or [math.inf]), "ms")
        site.path.set_shape(shape)

    def _several(self, trial: Trial, shape: Shape) -> None:
        """Load two paths of unlike rate at once."""
        slow = shape.but(rate_bps=(shape.rate_bps or 0) / 2)
        with trial.network("two-clients", shape=shape) as site:
            site.paths["r2"].set_shape(slow)
            tests = [
                iperf.start(client, site.server, site.server_address(4, client), seconds=4, omit=2)
                for client in site.clients.values()
            ]
            for name, share, test in zip(("fast", "slow"), (1.0, 0.5), tests, strict=True):
                trial.metric(f"two_paths_{name}", test.result().mbps, "Mbit/s")
                trial.metric(f"ceiling_{name}", _tcp_ceiling(trial) * share, "Mbit/s")

    def _sizes(self, trial: Trial, site: Site) -> None:
        """Check what the router does at an MTU: to the byte, in both families, with a word and without."""
        path = site.path
        path.set_mtu(SMALL_MTU)
        for version in (4, 6):
            fits = ping(site.client, site.server_address(version), size=SMALL_MTU, count=3)
            trial.metric(f"answered_at_mtu_v{version}", fits.received)
            path.router.set_silent(True)
            silent = ping(site.client, site.server_address(version), size=SMALL_MTU + 1, count=3, wait=0.5)
            trial.metric(f"answered_above_mtu_v{version}", silent.received)
            trial.metric(f"told_when_silent_v{version}", silent.output.lower().count("mtu"))
            path.router.set_silent(False)
            told = ping(site.client, site.server_address(version), size=SMALL_MTU + 1, count=2, wait=0.5)
            trial.metric(f"told_v{version}", _mtu_told(told.output))
        self._fragments(trial, site)

    def _fragments(self, trial: Trial, site: Site) -> None:
        """Send packets without DF: the router cuts them, unless it drops fragments."""
        host, address = site.client, site.server_address(4)
        host.run(["ip", "route", "flush", "cache"])
        command = ["ping", "-n", "-M", "dont", "-c", "3", "-i", "0.2", "-W", "1", "-s", "1472", str(address)]
        with Capture(site.server, site.path.at_server.device) as capture:
            host.run(command, check=False)
        cut = [p for p in capture.packets() if p.is_fragment and not p.outgoing]
        trial.metric("fragments_made", len(cut))
        site.path.router.set_drops_fragments(True)
        with Capture(site.server, site.path.at_server.device) as capture:
            host.run(command, check=False)
        trial.metric("fragments_let_through", sum(p.is_fragment and not p.outgoing for p in capture.packets()))

    def judge(self, judge: Judge) -> None:
        """Compare with the description."""
        rtt, rate = judge.parameters["rtt_ms"], judge.parameters["rate_mbps"]
        for version in (4, 6):
            _near(judge, f"IPv{version}: ping p50", f"p50_v{version}", rtt, 1.5, "ms", timing=True)
        if judge.parameters["assert_rates"]:
            self._judge_rates(judge, rate)
        else:
            judge.report("UDP offered 120 %", "udp_rate", "Mbit/s")
            judge.report("TCP, 1 BDP of queue, median", "tcp", "Mbit/s")
            judge.report("CPU of the emulator", "emulator_cpu", "cores")
        self._judge_facts(judge, rtt)

    def _judge_rates(self, judge: Judge, rate: float) -> None:
        _near(judge, "UDP offered 120 %", "udp_rate", rate, 0.02 * rate, "Mbit/s", timing=True)
        judge.at_most("UDP packets missed by the capture", "udp_not_captured", 0)
        judge.throughput("TCP, 1 BDP of queue, median", "tcp", ceiling="tcp_ceiling", share=0.97)
        for name in ("fast", "slow"):
            judge.throughput(
                f"two paths at once, {name}", f"two_paths_{name}", ceiling=f"ceiling_{name}", share=0.9
            )
        if not judge.outcome.values("emulator_cpu"):  # netem: it is the kernel that works
            return
        what, bound = "CPU of the emulator", "at most 0.3"
        if (figures := judge.medians(what, bound, "emulator_cpu")) is not None:
            judge.timing(what, f"{figures[0]:.2f} cores", bound, ok=figures[0] <= 0.3)

    def _judge_facts(self, judge: Judge, rtt: float) -> None:
        for metric in ("sent_with_loss", "sent_with_reordering"):
            judge.at_least(metric.replace("_", " "), metric, 0.9 * STREAM, "packets")
        _binomial(judge, f"loss of {LOSS:.0%}", "lost", "sent_with_loss", LOSS)
        _binomial(judge, f"reordering of {REORDER:.0%}", "overtook", "sent_with_reordering", REORDER)
        judge.at_most("lost without loss", "lost_with_reordering", 0)
        judge.at_most("lost while the delay is changed", "lost_in_change", 0)
        _near(judge, "ping p50 after the change", "p50_after_change", rtt / 2, 1.5, "ms", timing=True)
        for version in (4, 6):
            judge.at_least(f"IPv{version}: of 3 pings of the MTU", f"answered_at_mtu_v{version}", 3)
            judge.at_most(f"IPv{version}: of 3 pings of one byte more", f"answered_above_mtu_v{version}", 0)
            judge.at_most(f"IPv{version}: said by a silent router", f"told_when_silent_v{version}", 0)
            _near(judge, f"IPv{version}: MTU said by the router", f"told_v{version}", SMALL_MTU, 0, "bytes")
        judge.at_least("fragments made by the router", "fragments_made", 6)
        judge.at_most("fragments past a router that drops them", "fragments_let_through", 0)


def _tcp_ceiling(trial: Trial) -> float:
    """Return the Mbit/s of TCP payload that headers leave of the link's rate."""
    return float(trial.parameters["rate_mbps"]) * TCP_PAYLOAD / (LINK_MTU + ETHERNET_HEADER)


def _mtu_told(output: str) -> int:
    """Return the MTU that an ICMP error shown by ping names, 0 if none does."""
    found = re.search(r"mtu ?= ?(\d+)", output)
    return int(found[1]) if found else 0


def _near(
    judge: Judge, what: str, metric: str, wanted: float, apart: float, unit: str, *, timing: bool = False
) -> None:
    bound = f"{wanted:g} +- {apart:g}"
    if (figures := judge.medians(what, bound, metric)) is None:
        return
    ok = abs(figures[0] - wanted) <= apart
    value = f"{figures[0]:.4g} {unit}"
    if timing:
        judge.timing(what, value, bound, ok=ok)
    else:
        judge.fact(what, value, bound, ok)


def _binomial(judge: Judge, what: str, metric: str, total: str, share: float) -> None:
    if (figures := judge.medians(what, f"{share:.0%} within chance", metric, total)) is None:
        return
    found, number = figures
    expected, spread = share * number, SIGMAS * math.sqrt(number * share * (1 - share))
    bound = f"{expected:.0f} +- {spread:.0f}"
    judge.fact(f"{what}: packets of {number:.0f}", f"{found:.0f}", bound, abs(found - expected) <= spread)
