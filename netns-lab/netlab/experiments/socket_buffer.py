"""E16: datagrams that the kernel drops because the receiving socket's buffer is too small."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from typing import ClassVar, Final

from netlab import iperf, namespace
from netlab.daemon import Daemon
from netlab.experiment import Experiment, Parameter, Trial
from netlab.host import Host
from netlab.judge import Judge
from netlab.tunnels.base import Feature

ABLATION: Final = {"rcvbuf": "default"}
ARRIVED: Final = 0.5
"""Share of what is sent that the receiver must have counted; iperf3 does not wait for the last megabytes."""


class SocketBuffer(Experiment):
    """A 20 MB upload to a server that is held up for some milliseconds again and again, as on a busy machine.

    While it is, datagrams pile up in its socket. The hold-ups are the same with and without the cure.
    """

    name: ClassVar[str] = "socket-buffer"
    number: ClassVar[str] = "E16"
    title: ClassVar[str] = "datagrams dropped in front of a full socket buffer"
    needs: ClassVar[frozenset[Feature]] = frozenset({Feature.PROCESS})
    full_runs: ClassVar[int] = 3
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "megabytes": Parameter(20, "to send"),
        "stall_ms": Parameter(40.0, "how long the server is held up"),
        "every_ms": Parameter(200.0, "how often it is held up"),
    }

    def measure(self, trial: Trial) -> None:
        """Upload with the cure, then, where it can be switched off, without it."""
        self._upload(trial, "cured", {})
        if trial.has(Feature.ABLATIONS):
            self._upload(trial, "default_buffer", ABLATION)

    def _upload(self, trial: Trial, name: str, ablation: Mapping[str, str]) -> None:
        with trial.bring_up("direct", ablation=ablation) as up:
            server = up.tunnel.server
            assert server is not None
            before = _receive_buffer_errors(up.server)
            stall, every = trial.parameters["stall_ms"] / 1e3, trial.parameters["every_ms"] / 1e3
            trial.event(f"uploading, {name.replace('_', ' ')}")
            since = trial.sample.elapsed()
            with _Stalls(server, stall=stall, every=every):
                flow = iperf.run(
                    up.client,
                    up.server,
                    up.server_inner(4),
                    amount=int(trial.parameters["megabytes"] * 1e6),
                    interval=0.1,
                )
            trial.metric(f"{name}_dropped", _receive_buffer_errors(up.server) - before, "datagrams")
            trial.metric(f"{name}_megabytes", flow.bytes / 1e6, "MB")
            trial.metric(f"{name}_mbps", flow.mbps, "Mbit/s")
            trial.points("Mbit/s", flow.series, since=since)

    def judge(self, judge: Judge) -> None:
        """Allow no drop with the cure."""
        judge.at_most("dropped by the kernel (RcvbufErrors)", "cured_dropped", 0, "datagrams")
        judge.at_least("arrived", "cured_megabytes", judge.parameters["megabytes"] * ARRIVED, "MB")
        judge.report("upload", "cured_mbps", "Mbit/s")
        judge.report("with rcvbuf=default: dropped", "default_buffer_dropped", "datagrams")
        judge.report("with rcvbuf=default: upload", "default_buffer_mbps", "Mbit/s")


class _Stalls:
    """Stops a process for a moment, again and again, from entering the context to leaving it."""

    def __init__(self, daemon: Daemon, *, stall: float, every: float) -> None:
        self._daemon, self._stall, self._every = daemon, stall, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._daemon.send(signal.SIGSTOP)
            self._ended.wait(self._stall)
            self._daemon.send(signal.SIGCONT)


def _receive_buffer_errors(host: Host) -> int:
    """Return the kernel's count of UDP datagrams dropped for want of buffer in a namespace, both families."""
    snmp = namespace.read_proc_net(host.namespace, "snmp")
    names, values = [line.split() for line in snmp.splitlines() if line.startswith("Udp:")]
    total = int(values[names.index("RcvbufErrors")])
    for line in namespace.read_proc_net(host.namespace, "snmp6").splitlines():
        if line.startswith("Udp6RcvbufErrors"):
            total += int(line.split()[1])
    return total
