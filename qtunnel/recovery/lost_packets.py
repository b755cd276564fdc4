"""Packets declared lost, remembered for a while: some were only late (RFC 9002 §6.1, "spurious")."""

from __future__ import annotations

from typing import Final

from qtunnel.recovery.recovery_period import RecoveryPeriod
from qtunnel.recovery.sent_packets import SentPackets, SentRun

__all__ = ["LostPackets"]

MAX_LOST_RUNS: Final = 256


class LostPackets:
    """The newest lost runs, and the recovery period they belong to."""

    __slots__ = ("_runs", "highest", "period")

    def __init__(self) -> None:
        self.period = RecoveryPeriod()
        self._runs = SentPackets()
        self.highest = -1
        """The highest number ever lost; -1: none."""

    def __len__(self) -> int:
        """Return how many runs are remembered."""
        return len(self._runs)

    def remember(self, run: SentRun, mask: int) -> None:
        """Remember the packets of a run that a mask stands for."""
        lost = SentRun(
            run.first, run.count, run.size, run.time_sent, run.flags, None, run.snapshot, run.tx_in_flight
        )
        lost.outstanding = mask
        self._runs.insert(lost)
        self.highest = max(self.highest, run.first + mask.bit_length() - 1)
        if len(self._runs) > MAX_LOST_RUNS:
            # What arrives of it will not be recognised, so its period stays one with something missing.
            self._runs.take_oldest()

    def take_arrived(self, first: int, last: int) -> list[tuple[SentRun, int]]:
        """Take out those among packets first to last, inclusive: they were not lost. Runs with bits, as taken."""
        return self._runs.take(first, last)
