"""What was sent and is unanswered, as runs: one record for a burst, not for a packet (RFC 9002 appendix A.1).

A run is a row of packet numbers sent in one go, all of one size and one kind:

    first 100, count 6, outstanding 0b110100      102, 104 and 105 are unanswered

The runs stand in order of number, and beside them a list of the first numbers alone, for bisect. A run with
nothing outstanding is taken out at once. Taking from the front, the usual case, moves an index and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = [
    "ACK_ELICITING",
    "CONGESTION",
    "DATA",
    "IN_FLIGHT",
    "MTU_PROBE",
    "DeliverySnapshot",
    "SentPackets",
    "SentRun",
    "numbers",
]

ACK_ELICITING: Final = 1
IN_FLIGHT: Final = 2
MTU_PROBE: Final = 4
CONGESTION: Final = IN_FLIGHT | MTU_PROBE
"""Of these bits, IN_FLIGHT alone makes a packet one whose loss congestion control hears of."""
DATA: Final = ACK_ELICITING | IN_FLIGHT
"""What nearly every run is."""

COMPACT_AT: Final = 512
"""So many dead entries at the front are dropped in one go, if that is at least half."""


DeliverySnapshot: TypeAlias = tuple[int, float, float, int, bool]
"""What had been delivered when a run was sent (draft-ietf-ccwg-bbr, "Transmitting a data packet"): delivered,
delivered_time, first_sent_time, lost, is_app_limited. Sizes in bytes, times in seconds. Runs sent between two ACKs
share one. A bare tuple, as one is made for each ACK that is answered: 36 ns, where a named one takes 533.
"""


class SentRun:
    """Packets first to first + count - 1, sent at one time, each of the same size.

    size: bytes of the UDP payload. outstanding: bit i set = packet first + i is neither acknowledged, lost nor
    discarded. tx_in_flight: bytes in flight right after this run was sent. follows_gap: a packet sent between the
    run before this one and this one was not lost.
    """

    __slots__ = (
        "count",
        "first",
        "flags",
        "follows_gap",
        "outstanding",
        "payload",
        "size",
        "snapshot",
        "time_sent",
        "tx_in_flight",
    )

    def __init__(
        self,
        first: int,
        count: int,
        size: int,
        time_sent: float,
        flags: int,
        payload: object | None,
        snapshot: DeliverySnapshot,
        tx_in_flight: int,
    ) -> None:
        self.first = first
        self.count = count
        self.size = size
        self.time_sent = time_sent
        self.outstanding = (1 << count) - 1
        self.flags = flags
        self.payload = payload
        self.snapshot = snapshot
        self.tx_in_flight = tx_in_flight
        self.follows_gap = False

    def __repr__(self) -> str:
        return f"<SentRun {self.first}+{self.count} of {self.size}, outstanding {self.outstanding:b}>"


def numbers(run: SentRun, mask: int) -> list[int]:
    """Return the packet numbers that a mask of a run's bits stands for, lowest first."""
    return [run.first + bit for bit in range(mask.bit_length()) if mask >> bit & 1]


class SentPackets:
    """Runs in order of packet number, each with something outstanding."""

    __slots__ = ("_firsts", "_head", "_runs")

    def __init__(self) -> None:
        self._runs: list[SentRun] = []
        self._firsts: list[int] = []
        self._head = 0

    def append(self, run: SentRun) -> None:
        """Add a run whose numbers are above all that were ever added."""
        self._runs.append(run)
        self._firsts.append(run.first)

    def insert(self, run: SentRun) -> None:
        """Add a run anywhere. Bits of one that starts with the same number are joined to it."""
        firsts = self._firsts
        if len(firsts) == self._head or run.first > firsts[-1]:
            self.append(run)
            return
        index = bisect_left(firsts, run.first, self._head)
        if index < len(firsts) and firsts[index] == run.first:
            self._runs[index].outstanding |= run.outstanding
            return
        firsts.insert(index, run.first)
        self._runs.insert(index, run)

    def first_number(self) -> int | None:
        """Return the first number of the oldest run; None when there is none."""
        return self._firsts[self._head] if self._head < len(self._firsts) else None

    def runs(self) -> list[SentRun]:
        """Return all runs, oldest first."""
        return self._runs[self._head :]

    def runs_through(self, last: int) -> list[SentRun]:
        """Return the runs that begin at or before a packet number, oldest first."""
        firsts, head = self._firsts, self._head
        # Usually there is none, and bisect would cost more than this look.
        if head == len(firsts) or firsts[head] > last:
            return []
        return self._runs[head : bisect_right(firsts, last, head)]

    def runs_from(self, number: int) -> list[SentRun]:
        """Return the runs that begin at a packet number or above it, oldest first."""
        return self._runs[bisect_left(self._firsts, number, self._head) :]

    def has_any_through(self, last: int) -> bool:
        """Return whether any packet up to a number, inclusive, is outstanding."""
        return any(run.outstanding & ((2 << (last - run.first)) - 1) for run in self.runs_through(last))

    def __len__(self) -> int:
        """Return how many runs there are."""
        return len(self._runs) - self._head

    def take(self, first: int, last: int) -> list[tuple[SentRun, int]]:
        """Take the packets first to last, inclusive, out. Return each run they are of with the bits taken.

        Oldest first; a run without any of them is not in the list. The cost is one bisect for each end and
        a step for each run touched, whatever the number of packets.
        """
        firsts, runs, head = self._firsts, self._runs, self._head
        stop = bisect_right(firsts, last, head)
        start = bisect_right(firsts, first, head, stop) - 1
        if start < head:
            start = head
        if start >= stop:
            return []
        taken = []
        # Only the two runs at the ends can hold numbers outside of first to last.
        emptied_from, emptied_to = start, stop
        for index in range(start, stop):
            run = runs[index]
            mask = run.outstanding
            below = first - run.first
            if below > 0:
                mask = mask >> below << below
            through = last - run.first + 1
            if through < run.count:
                mask &= (1 << through) - 1
            if mask == run.outstanding:
                run.outstanding = 0
            else:
                run.outstanding ^= mask
                if index == start:
                    emptied_from = start + 1
                if index == stop - 1:
                    emptied_to = index
            if mask:
                taken.append((run, mask))
        if emptied_from < emptied_to:
            if emptied_to < len(runs):
                runs[emptied_to].follows_gap = True
            self._remove(emptied_from, emptied_to)
        return taken

    def remove_empty(self, among: int) -> None:
        """Take out the runs among the oldest `among` that have nothing outstanding any more."""
        head = self._head
        kept = [run for run in self._runs[head : head + among] if run.outstanding]
        surplus = among - len(kept)
        if surplus:
            self._runs[head + surplus : head + among] = kept
            self._firsts[head + surplus : head + among] = [run.first for run in kept]
            self._remove(head, head + surplus)

    def take_where(self, predicate: Callable[[SentRun], bool]) -> list[SentRun]:
        """Take out all runs that a predicate is true of, oldest first. Each run is looked at."""
        taken = [run for run in self.runs() if predicate(run)]
        if taken:
            self._runs = [run for run in self.runs() if not predicate(run)]
            self._firsts = [run.first for run in self._runs]
            self._head = 0
        return taken

    def take_oldest(self) -> SentRun:
        """Take the oldest run out. Raises: IndexError if there is none."""
        run = self._runs[self._head]
        self._remove(self._head, self._head + 1)
        return run

    def _remove(self, start: int, stop: int) -> None:
        if start != self._head:
            del self._runs[start:stop]
            del self._firsts[start:stop]
            return
        self._head = stop
        if stop >= COMPACT_AT and stop * 2 >= len(self._runs):
            del self._runs[:stop]
            del self._firsts[:stop]
            self._head = 0
