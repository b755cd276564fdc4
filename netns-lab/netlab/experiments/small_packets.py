"""The highest rate of small packets that a tunnel carries with at most half a per cent lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from netlab import iperf
from netlab.errors import LabError
from netlab.experiment import Experiment, Parameter, Trial, Up
from netlab.judge import Judge

SIZES: Final = (64, 200, 600)
STEPS: Final = (2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 130, 170, 220)
"""Offered, in thousands of packets a second."""
MOST_LOST: Final = 0.005
GIVE_UP: Final = 2
"""Steps in a row that may fail before the search ends: a single stall of the machine spoils one."""


class SmallPackets(Experiment):
    """UDP from client to server on a bare veth pair, step by step; size is that of the payload."""

    name: ClassVar[str] = "small-packets"
    title: ClassVar[str] = "highest rate of 64, 200 and 600 bytes with at most 0.5 % lost"
    full_runs: ClassVar[int] = 3
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "seconds": Parameter(2.0, "of each step"),
    }

    def measure(self, trial: Trial) -> None:
        """Climb, for each size."""
        with trial.bring_up("direct") as up:
            for size in SIZES:
                self._climb(trial, up, size)

    def _climb(self, trial: Trial, up: Up, size: int) -> None:
        best, most, failed = 0, 0.0, 0
        for step in STEPS:
            flow = iperf.run(
                up.client,
                up.server,
                up.server_inner(4),
                seconds=trial.parameters["seconds"],
                udp_rate=step * 1e3 * size * 8,
                udp_length=size,
            )
            sent, lost = flow.packets or 0, flow.lost or 0
            share = lost / sent if sent else 1.0
            delivered = (sent - lost) / trial.parameters["seconds"]
            most = max(most, delivered)
            trial.say(f"{size} bytes, {step}000/s offered: {share:.2%} lost of {sent}")
            # The sender must have kept up: a rate that was not offered proves nothing.
            if share <= MOST_LOST and sent >= 0.95 * step * 1e3 * trial.parameters["seconds"]:
                best, failed = step * 1000, 0
            else:
                failed += 1
            if failed >= GIVE_UP:
                break
        if not most:
            raise LabError(f"no packet of {size} bytes arrived, at any rate")
        trial.metric(f"best_{size}", best, "packets/s")
        trial.metric(f"most_{size}", most, "packets/s")

    def judge(self, judge: Judge) -> None:
        """Report."""
        for size in SIZES:
            judge.report(f"{size} bytes: at most 0.5 % lost", f"best_{size}", "packets/s")
            judge.report(f"{size} bytes: most delivered", f"most_{size}", "packets/s")
