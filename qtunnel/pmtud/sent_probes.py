"""Probes that were sent, by number: unanswered, or thought lost and perhaps only late (RFC 8899 §4.1)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from qtunnel.pmtud.probes import ProbePacket
from qtunnel.pmtud.search import ParallelSearch
from qtunnel.pmtud.trial import Pair

__all__ = ["SentProbe", "SentProbes"]

MAX_LATE: Final = 64


class SentProbe:
    """A probe under way, with the search or the pair it belongs to. is_excused: its loss will say nothing."""

    __slots__ = ("is_excused", "packet", "pair", "search", "time_sent")

    def __init__(self, packet: ProbePacket, time_sent: float) -> None:
        self.packet = packet
        self.time_sent = time_sent
        self.search = packet.owner if isinstance(packet.owner, ParallelSearch) else None
        self.pair = packet.owner if isinstance(packet.owner, Pair) else None
        self.is_excused = False


class SentProbes:
    """The probes of one path."""

    __slots__ = ("_late", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Hashable, SentProbe] = {}
        self._late: dict[Hashable, SentProbe] = {}

    def __len__(self) -> int:
        """Return how many are unanswered."""
        return len(self._waiting)

    def add(self, number: Hashable, probe: SentProbe) -> None:
        """Take a probe that was sent."""
        self._waiting[number] = probe

    def waits_for(self, search: ParallelSearch | None) -> bool:
        """Return whether a probe of a search is unanswered; None: one of no search, such as a base probe."""
        return any(probe.search is search and probe.pair is None for probe in self._waiting.values())

    def take_acked(self, number: Hashable) -> SentProbe | None:
        """Take the probe of a number out, even one that was thought lost."""
        return self._waiting.pop(number, None) or self._late.pop(number, None)

    def take_lost(self, number: Hashable) -> SentProbe | None:
        """Take the probe of a number out; it is remembered for a while, as it may only be late."""
        probe = self._waiting.pop(number, None)
        if probe is not None:
            self._late[number] = probe
            if len(self._late) > MAX_LATE:
                del self._late[next(iter(self._late))]
        return probe

    def oldest_sent(self) -> float | None:
        """Return when the oldest unanswered probe was sent."""
        return min((probe.time_sent for probe in self._waiting.values()), default=None)

    def sent_until(self, time: float) -> list[Hashable]:
        """Return the numbers of the unanswered probes sent no later than a time."""
        return [number for number, probe in self._waiting.items() if probe.time_sent <= time]

    def excuse(self) -> None:
        """Let the loss of any probe that is unanswered now say nothing."""
        for probe in self._waiting.values():
            probe.is_excused = True

    def clear(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
        self._late.clear()
