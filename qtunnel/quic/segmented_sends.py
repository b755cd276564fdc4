"""Whether batches may leave by UDP_SEGMENT: given up when a peer loses them and gets what goes alone.

Some kernels and drivers send segments with wrong checksums, all but the first of a batch or all of it, and say
nothing. Only the peer's acknowledgements tell. Most of a batch lost is also what a short queue on the path does to
a burst, so it only raises suspicion. Then a trial: each of the next bursts leaves either segmented or datagram by
datagram, in the same instant, in an order drawn by lot. To a queue the two look the same; if nearly all segmented
ones lose most of their packets and nearly none of the others does, it is the segmentation. With 16 bursts of each
kind chance does that in fewer than one of 100,000 trials, whatever the path's losses are
(docs/design/0013-segmented-sends.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qtunnel.recovery.sent_packets import SentRun

__all__ = ["GsoVerdict", "SegmentedSends"]

logger = logging.getLogger(__name__)

SUSPICIOUS_RUNS: Final = 3
SUSPICION_S: Final = 10.0
"""So many batches in so many seconds that lost most of their packets lead to a trial."""
BURSTS_OF_A_KIND: Final = 16
MOST_GOOD: Final = 2
"""Segmented bursts of a trial that may arrive in a verdict against segmentation."""
MOST_BAD: Final = 1
"""Bursts sent singly of which most may be lost in a verdict against segmentation."""
TRIAL_S: Final = 60.0
"""A trial that has not ended by then is void: there was too little to send."""
FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 3600.0
"""Seconds to the next trial after one that acquitted; doubled each time."""


@dataclass(slots=True)
class GsoVerdict:
    """What the connections of one host have found, for all of them.

    hosts_needed: so many peers, by address, must have lost batches before nobody's are segmented any more: one
    client of a server must not slow down all others. trials: begun. given_up: connections that stopped.
    """

    hosts_needed: int = 1
    trials: int = 0
    given_up: int = 0
    hosts: set[str] = field(default_factory=set)

    @property
    def is_off(self) -> bool:
        """Whether no connection segments any more."""
        return len(self.hosts) >= self.hosts_needed


@dataclass(slots=True)
class _Tried:
    run: SentRun
    is_singly: bool
    lost: int = 0

    @property
    def is_bad(self) -> bool:
        return _is_most_lost(self.run, self.lost)


class SegmentedSends:
    """Of one connection. is_off: every datagram is a send of its own from now on.

    For each burst: sends_singly, then on_sent while is_trying; on_lost and, while is_trying, judge after each ACK.
    """

    __slots__ = (
        "_lot",
        "_not_before",
        "_pause",
        "_seed",
        "_since",
        "_suspicious",
        "_tried",
        "is_off",
        "verdict",
    )

    def __init__(self, verdict: GsoVerdict, *, seed: int) -> None:
        self.verdict = verdict
        self.is_off = False
        self._seed = seed
        self._lot: list[bool] = []
        self._tried: dict[int, _Tried] = {}
        self._suspicious: list[float] = []
        self._since: float | None = None
        self._not_before = float("-inf")
        self._pause = FIRST_PAUSE_S

    @property
    def is_trying(self) -> bool:
        """Whether a trial is under way."""
        return self._since is not None

    def sends_singly(self, pto_count: int) -> bool:
        """Return whether the burst that is sent now goes datagram by datagram; after a probe timeout it does."""
        if self.is_off or pto_count or self.verdict.is_off:
            return True
        return bool(self._lot) and self._lot[-1]

    def on_sent(self, runs: Iterable[SentRun], *, is_singly: bool) -> None:
        """Take a burst of a trial: its first run of two packets and more; a burst without one is none."""
        if not self._lot or is_singly is not self._lot[-1]:
            return
        for run in runs:
            if run.count > 1:
                self._lot.pop()
                self._tried[run.first] = _Tried(run, is_singly)
                return

    def on_lost(self, lost: Iterable[tuple[SentRun, int]], now: float) -> None:
        """Look at packets declared lost: runs, and the bits of those."""
        if self._since is not None:
            for run, mask in lost:
                tried = self._tried.get(run.first)
                if tried is not None:
                    tried.lost |= mask
            return
        if self.is_off or self.verdict.is_off or now < self._not_before:
            return
        self._suspicious += [now for run, mask in lost if run.count > 1 and _is_most_lost(run, mask)]
        while self._suspicious and now - self._suspicious[0] > SUSPICION_S:
            self._suspicious.pop(0)
        if len(self._suspicious) >= SUSPICIOUS_RUNS:
            self._begin(now)

    def judge(self, now: float, host: str) -> None:
        """End the trial if it has shown enough. host: the peer's address."""
        if self._since is None:
            return
        known = [each for each in self._tried.values() if not each.run.outstanding]
        bad = sum(each.is_singly and each.is_bad for each in known)
        good = sum(not each.is_singly and not each.is_bad for each in known)
        if bad > MOST_BAD or good > MOST_GOOD or now - self._since > TRIAL_S:
            self._end(now)
        elif len(known) == 2 * BURSTS_OF_A_KIND:
            self._end(now)
            self._give_up(host)

    def _begin(self, now: float) -> None:
        self._since = now
        self._suspicious.clear()
        self.verdict.trials += 1
        self._lot = _draw(b"%d/%d" % (self._seed, self.verdict.trials))
        logger.debug("most of several batches was lost: is it the segmentation?")

    def _end(self, now: float) -> None:
        self._since = None
        self._lot = []
        self._tried.clear()
        self._not_before = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)

    def _give_up(self, host: str) -> None:
        self.is_off = True
        self.verdict.given_up += 1
        self.verdict.hosts.add(host)
        logger.warning(
            "%s gets datagrams that are sent alone and loses those sent together (UDP_SEGMENT), a fault of this "
            "kernel or of the interface's driver; sending one by one from now on. To look: ethtool -K DEVICE "
            "tx-udp-segmentation off, and --no-gso",
            host,
        )


def _draw(seed: bytes) -> list[bool]:
    """Return as many of each kind in an order that nothing on the path can follow."""
    order = sorted(range(2 * BURSTS_OF_A_KIND), key=lambda place: sha256(b"%b/%d" % (seed, place)).digest())
    return [place < BURSTS_OF_A_KIND for place in order]


def _is_most_lost(run: SentRun, lost: int) -> bool:
    """Return whether half of a run's packets and more are lost, the first aside: that one may be sound."""
    return 2 * (lost >> 1).bit_count() >= run.count - 1
