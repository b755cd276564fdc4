"""iperf3: bulk TCP and UDP between two hosts, each test with a server of its own that cannot outlive it."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any, Final

from netlab.addresses import IPAddress
from netlab.daemon import Daemon
from netlab.errors import CommandError
from netlab.host import Host

_PORTS: Final = itertools.count(5201)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What a test has carried, as its receiver saw it. series: (seconds since its start, Mbit/s) points.

    mss: TCP payload of a full packet, None for UDP.
    """

    mbps: float
    series: list[tuple[float, float]]
    retransmits: int | None
    mss: int | None
    lost: int | None
    packets: int | None
    bytes: int
    sender_cpu: float
    receiver_cpu: float


@dataclass(slots=True)
class Test:
    """A test under way."""

    server: Daemon
    client: Daemon
    reverse: bool
    timeout: float

    def result(self) -> Flow:
        """Wait for the end and return what came out; CommandError with iperf3's own words if it failed."""
        try:
            self.client.wait(timeout=self.timeout)
        finally:
            self.client.stop()
            self.server.stop()
        return parse(self.client.text(), reverse=self.reverse)


def start(
    client: Host,
    server: Host,
    address: IPAddress,
    *,
    seconds: float = 5.0,
    omit: float = 0.0,
    reverse: bool = False,
    streams: int = 1,
    congestion: str = "cubic",
    udp_rate: float | None = None,
    udp_length: int | None = None,
    amount: int | None = None,
    interval: float = 1.0,
    grace: float = 60.0,
) -> Test:
    """Begin a test from client to server (reverse: the other way), TCP unless there is a UDP rate (bits/s).

    omit: seconds at the start that do not count. amount: bytes to send, instead of a time. grace: seconds after
    the end of the time at which a test that hangs is ended.
    """
    port = str(next(_PORTS))
    limit = seconds + omit + grace
    listener = server.start(
        ["timeout", f"{limit:g}", "iperf3", "-s", "-1", "-p", port, "-i", f"{interval:g}", "--forceflush"],
        name=f"iperf3-server-{port}",
    )
    listener.wait_for("listening")
    arguments = ["-c", str(address), "-p", port, "-J", "--get-server-output", "-i", f"{interval:g}"]
    arguments += ["-n", str(amount)] if amount is not None else ["-t", f"{seconds:g}"]
    arguments += ["-O", f"{omit:g}"] if omit else []
    arguments += ["-R"] if reverse else []
    arguments += ["-P", str(streams)] if streams > 1 else []
    if udp_rate is None:
        arguments += ["-C", congestion]
    else:
        arguments += ["-u", "-b", f"{udp_rate:.0f}", "-w", "4M"]
        arguments += ["-l", str(udp_length)] if udp_length is not None else []
    runner = client.start(
        ["timeout", f"{limit:g}", "iperf3", *arguments, "--connect-timeout", "5000"],
        name=f"iperf3-{port}",
    )
    return Test(listener, runner, reverse, limit + 5.0)


def run(client: Host, server: Host, address: IPAddress, **settings: Any) -> Flow:
    """Do a test to its end (settings as for start)."""
    return start(client, server, address, **settings).result()


def parse(text: str, *, reverse: bool) -> Flow:
    """Return what a report says; CommandError if there is none or it names an error."""
    try:
        # Warnings (of UDP packets larger than the path MTU) stand before it.
        found: dict[str, Any] = json.loads(text[text.index("{\n") :])
    except ValueError as error:
        raise CommandError("iperf3 printed no JSON", output=text[:2000]) from error
    if "error" in found:
        raise CommandError(f"iperf3: {found['error']}")
    try:
        return _flow(found, reverse=reverse)
    except KeyError as error:
        raise CommandError(f"iperf3's report has no {error}", output=text[:2000]) from error


def _flow(found: dict[str, Any], *, reverse: bool) -> Flow:
    end = found["end"]
    received = end.get("sum_received") or end["sum"]
    own, other = end["cpu_utilization_percent"]["host_total"], end["cpu_utilization_percent"]["remote_total"]
    # The receiver's intervals: our own when it sends to us, else those it has reported.
    side = found if reverse else found.get("server_output_json", found)
    # Times begin anew after the seconds that do not count, so they are added up here.
    intervals = [interval["sum"] for interval in side.get("intervals", [])]
    shortest = 0.2 * max((entry["seconds"] for entry in intervals), default=0.0)  # the last may be no rate at all
    ends = itertools.accumulate(entry["seconds"] for entry in intervals)
    return Flow(
        mbps=received["bits_per_second"] / 1e6,
        series=[
            (end, entry["bits_per_second"] / 1e6)
            for end, entry in zip(ends, intervals, strict=True)
            if entry["seconds"] >= shortest
        ],
        retransmits=end.get("sum_sent", {}).get("retransmits"),
        mss=found.get("start", {}).get("tcp_mss_default") or None,
        lost=end.get("sum", {}).get("lost_packets"),
        packets=end.get("sum", {}).get("packets"),
        bytes=received["bytes"],
        sender_cpu=(other if reverse else own) / 100,
        receiver_cpu=(own if reverse else other) / 100,
    )
