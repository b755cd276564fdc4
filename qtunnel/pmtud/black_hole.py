"""Finds a path that became narrower by what its own packets meet: suspicion, question, verdict (RFC 8899 §4.3).

Losses of large packets only raise suspicion: full queues lose them too. What decides are pairs of packets
(`trial`), and any large packet that arrives acquits at once. Meanwhile smaller sizes are asked for, so that a
conviction knows what to go on with.
"""

from __future__ import annotations

from typing import Final

from qtunnel.pmtud.evidence import Evidence
from qtunnel.pmtud.probes import SMALL_SIZE, ProbePacket, Purpose
from qtunnel.pmtud.round_trips import RoundTrips
from qtunnel.pmtud.search import ParallelSearch
from qtunnel.pmtud.sent_probes import SentProbe, SentProbes
from qtunnel.pmtud.trial import Trial

__all__ = ["BlackHoleDetector"]

PROBES_BESIDE: Final = 3
"""So many smaller sizes are asked for in a round trip even when lost packets fill the congestion window."""
CALM: Final = 30.0
"""Seconds without a false alarm, after which the next suspicion needs no more losses than the first did."""
HINT_PAUSE: Final = 1.0
MAX_HINT_PAUSE: Final = 64.0
"""Seconds between suspicions that ICMP messages alone may raise; twice as long after each that was wrong."""
COMPANIONS: Final = 2
"""Small packets of a pair. One of them has to arrive: where losses are frequent one alone is often lost too."""


class BlackHoleDetector:
    """Sizes in bytes of UDP payload, times in seconds.

    trial: the question being put; None: there is no suspicion. below: the search for what still gets through;
    it begins with the second pair, as most suspicions end with the first.
    """

    __slots__ = (
        "_base",
        "_hint",
        "_hint_allowed_at",
        "_hint_pause",
        "_holds",
        "_last_false_alarm",
        "_probes",
        "_trips",
        "_version",
        "below",
        "evidence",
        "trial",
    )

    def __init__(self, base: int, version: int, trips: RoundTrips, probes: SentProbes) -> None:
        self._base = base
        self._version = version
        self._trips = trips
        self._probes = probes
        self._hint: int | None = None
        self._hint_allowed_at = float("-inf")
        self._hint_pause = HINT_PAUSE
        self._last_false_alarm = float("-inf")
        self.evidence = Evidence()
        self.trial: Trial | None = None
        self.below = ParallelSearch(base, base, version)
        self._holds = False

    @property
    def is_holding(self) -> bool:
        """Whether large ordinary packets have to wait.

        Before the first pair, so that a queue they made drains; and once a pair has spoken against the path while
        there is a queue, which would lose the small packets of the next pairs. Without one they are let go, even
        to be lost: small packets may wait behind them.
        """
        trial = self.trial
        return self._holds or (trial is not None and self._trips.queued > 0 and trial.speaks_against)

    # What raises suspicion

    def on_packets_acked(self, size: int, count: int, newest_sent: float) -> bool:
        """Take ordinary packets acknowledged. Return whether that acquits."""
        self.evidence.on_acked(size, count, newest_sent)
        return self._on_arrived(size, newest_sent)

    def on_packets_lost(self, size: int, count: int, sent: float, now: float) -> str | None:
        """Take ordinary packets lost. Return a reason for suspicion, if that is one at once."""
        evidence = self.evidence
        evidence.on_lost(size, count, sent, now + self._trips.shortest)
        return self._losses() if evidence.is_enough and self.trial is None else None

    def on_pto(self, largest: int) -> str | None:
        """Take note of a probe timeout; largest: of what is unanswered. Return a reason for suspicion."""
        if self.trial is not None or largest <= self._base:
            return None
        return "nothing was acknowledged for a whole probe timeout, and large packets were under way"

    def on_timer(self, now: float) -> str | None:
        """Return a reason for suspicion that has ripened by now."""
        watch_at = self.evidence.watch_at
        return self._losses() if self.trial is None and watch_at is not None and now >= watch_at else None

    def on_hint(self, size: int, now: float) -> bool:
        """Take a size that a message named. Return whether it may raise suspicion now."""
        self._hint = size
        if self.trial is not None:
            self.below.suggest(size)
        return self.trial is None and now >= self._hint_allowed_at

    def _losses(self) -> str:
        evidence = self.evidence
        return (
            f"{evidence.count} packets of up to {evidence.size} bytes were lost, and none as large arrived after"
        )

    # The question

    def suspect(self, size: int, reason: str, now: float, *, is_silent: bool) -> Trial:
        """Begin a trial. is_silent: nothing was sent or answered for a while, so no queue of ours is left."""
        evidence = self.evidence
        queued = 0.0 if is_silent else self._trips.queued
        self._holds = queued > 0
        self.below = ParallelSearch(self._base, size - 1, self._version)
        if self._hint is not None and self._base < self._hint < size:
            self.below.suggest(self._hint)
        self.trial = Trial(
            size=size,
            since=now,
            needed=evidence.loss_rate.pairs_needed,
            acquitted_after=evidence.last_sent if evidence.count else now,
            first_pair=now + queued,
            reason=reason,
        )
        return self.trial

    def packets_to_send(self, now: float, window: int) -> list[ProbePacket]:
        """Return a pair, if it is time for one, and probes of smaller sizes with it."""
        trial = self.trial
        if trial is None or now < trial.next_pair:
            return []
        self._holds = False
        pair = trial.start_pair(now, self._trips.shortest, self._trips.smoothed)
        packets = [
            ProbePacket(trial.size, Purpose.PAIR, pair),
            *(ProbePacket(SMALL_SIZE, Purpose.COMPANION, pair) for _ in range(COMPANIONS)),
        ]
        below = self.below
        if len(trial.pairs) > 1 and not self._probes.waits_for(below):
            sizes = below.next_flight(max(window, PROBES_BESIDE * trial.size))
            packets += [ProbePacket(size, Purpose.SEARCH, below) for size in sizes]
        return packets

    def get_timer(self) -> float | None:
        """Return when something is due; None: nothing."""
        return self.evidence.watch_at if self.trial is None else self.trial.next_pair

    # The answers

    def on_probe_acked(self, probe: SentProbe, now: float) -> bool:
        """Take a probe that arrived. Return whether that acquits."""
        if probe.packet.purpose is Purpose.COMPANION:
            if probe.pair is not None and self.trial is not None:
                self.trial.on_companion_acked(probe.pair, now)
            return False
        if self.trial is not None and probe.pair in self.trial.pairs:
            # It may have left at the moment suspicion began.
            return True
        return self._on_arrived(probe.packet.size, probe.time_sent)

    def _on_arrived(self, size: int, sent: float) -> bool:
        trial = self.trial
        if trial is None or sent <= trial.acquitted_after:
            return False
        if size >= trial.size:
            return True
        if size > trial.proved and sent > trial.since:
            trial.proved = size
            self.below.on_acked(size)
        return False

    def on_pair_lost(self, probe: SentProbe) -> None:
        """Take a packet of a pair that was lost."""
        pair = probe.pair
        if pair is None:
            return
        if probe.is_excused:
            pair.is_void = True
        elif probe.packet.purpose is Purpose.PAIR:
            pair.probe_lost = True

    def on_refused(self) -> None:
        """Take note that our own kernel refused the large packet of the newest pair."""
        if self.trial is not None and self.trial.pairs:
            self.trial.pairs[-1].probe_lost = True

    @property
    def is_convicted(self) -> bool:
        """Whether the trial has found the path to be narrower."""
        return self.trial is not None and self.trial.is_convicted(self._trips.shortest)

    def acquit(self, now: float) -> None:
        """End the trial: the size gets through."""
        if now - self._last_false_alarm > CALM:
            self.evidence.be_patient_no_more()
            self._hint_pause = HINT_PAUSE
        self._last_false_alarm = now
        self.evidence.on_false_alarm()
        self._hint_allowed_at = now + self._hint_pause
        self._hint_pause = min(2 * self._hint_pause, MAX_HINT_PAUSE)
        self._end()

    def convict(self) -> ParallelSearch:
        """End the trial: the size does not get through. Return the search below it, to be gone on with."""
        self.evidence.clear()
        self.evidence.be_patient_no_more()
        self._end()
        return self.below

    def _end(self) -> None:
        self.trial = None
        self._holds = False
        self._hint = None

    def excuse(self, now: float) -> None:
        """Take note that we slept: what was lost until now, and the pairs under way, say nothing."""
        self.evidence.excuse(now)
        if self.trial is not None:
            self.trial.excuse(now, self._trips.shortest)

    def stop(self) -> None:
        """Drop all suspicion: the path is gone."""
        self.evidence.clear()
        self._end()
