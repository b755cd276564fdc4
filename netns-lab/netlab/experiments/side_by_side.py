"""E18: two variants at the same instant under the same load, so that only one thing differs."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar, Final

from netlab.daemon import Daemon
from netlab.errors import LabError
from netlab.experiment import Experiment, Parameter, Trial, Up
from netlab.judge import Judge
from netlab.pinger import Pinger
from netlab.pings import ping
from netlab.tunnels.base import Feature

VARIANTS: Final = ("a", "b")
MARK: Final = "192.0.2.77"


class SideBySide(Experiment):
    """Two networks with a tunnel each; both clients are stopped for most of each second, as if starved of CPU.

    A tunnel whose event loop did not run must not take that for the path's fault: nothing may be taken down, and
    it must work again right after. A variant is outer=4, outer=6, path_mtu=N, or an ablation (rcvbuf=default).
    """

    name: ClassVar[str] = "side-by-side"
    number: ClassVar[str] = "E18"
    title: ClassVar[str] = "two variants under one load, their processes starved"
    needs: ClassVar[frozenset[Feature]] = frozenset({Feature.PROCESS})
    full_runs: ClassVar[int] = 3
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "a": Parameter("outer=4", "the first variant"),
        "b": Parameter("outer=6", "the second variant"),
        "seconds": Parameter(15.0, "of starvation"),
        "stop_ms": Parameter(950.0, "that the clients are stopped in each second"),
        "burners": Parameter(2, "processes that do nothing but use CPU meanwhile"),
    }

    def measure(self, trial: Trial) -> None:
        """Bring both up, starve both alike, and look at what each did."""
        with ExitStack() as stack:
            ups = {
                name: stack.enter_context(trial.bring_up("path", **_variant(trial.parameters[name])))
                for name in VARIANTS
            }
            monitors = {name: _watch(up) for name, up in ups.items()}
            burners = [_burner(ups["a"]) for _ in range(int(trial.parameters["burners"]))]
            pingers = {
                name: stack.enter_context(Pinger(up.client, up.server_inner(4), interval=0.05))
                for name, up in ups.items()
            }
            trial.event("both clients starved")
            self._starve(trial, [up.inner.daemon for up in ups.values() if up.inner.daemon is not None])
            trial.event("both run freely again")
            for burner in burners:
                burner.stop()
            for name, up in ups.items():
                self._look(trial, name, up, monitors[name])
        for name, pinger in pingers.items():
            replies = pinger.replies()
            trial.metric(f"answered_{name}", 1 - replies.lost / max(1, replies.sent))
            points = [(at - trial.sample.began, rtt) for at, rtt in replies.rtts]
            trial.points(f"RTT ms, {trial.parameters[name]}", points, since=0.0)

    def _starve(self, trial: Trial, daemons: list[Daemon]) -> None:
        stopped = trial.parameters["stop_ms"] / 1e3
        until = time.monotonic() + trial.parameters["seconds"]
        while time.monotonic() < until:
            for number, wait in ((signal.SIGSTOP, stopped), (signal.SIGCONT, max(0.0, 1.0 - stopped))):
                for daemon in daemons:
                    daemon.send(number)
                trial.wait(wait)

    def _look(self, trial: Trial, name: str, up: Up, monitor: Daemon) -> None:
        result = ping(up.client, up.server_inner(4), count=10, interval=0.1)
        trial.metric(f"after_{name}", result.received)
        # What the record shows last is a change of our own: had it seen nothing, it would prove nothing.
        for verb in ("add", "del"):
            up.client.run(["ip", "addr", verb, MARK, "dev", "lo"])
        monitor.wait_for(rf"^Deleted.*{re.escape(MARK)}")
        lost = [line for line in monitor.text().splitlines() if line.startswith("Deleted") and MARK not in line]
        for line in lost:
            trial.say(line)
        trial.metric(f"taken_down_{name}", len(lost))

    def judge(self, judge: Judge) -> None:
        """Demand that neither took anything down, and both work right after."""
        for name in VARIANTS:
            variant = judge.parameters[name]
            judge.at_most(f"{variant}: addresses, links, routes taken down", f"taken_down_{name}", 0)
            judge.at_least(f"{variant}: of ten pings right after", f"after_{name}", 9)
            judge.report(f"{variant}: echoes answered while starved", f"answered_{name}")


def _variant(text: Any) -> dict[str, Any]:
    key, equals, value = str(text).partition("=")
    if not equals:
        raise LabError(f"a variant is KEY=VALUE, such as outer=6, not {text!r}")
    return {key: int(value)} if key in ("outer", "path_mtu") else {"ablation": {key: value}}


def _watch(up: Up) -> Daemon:
    """Record what the client's host loses: each line that begins with Deleted is something taken down."""
    return up.client.start(["ip", "monitor", "link", "address", "route"], name="monitor")


def _burner(up: Up) -> Daemon:
    return up.client.start([sys.executable, "-c", "while True: pass"], name="burner")
