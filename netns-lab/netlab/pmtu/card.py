"""What is known of the black-hole detector and the search by simulation, on one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from netlab.pmtu.bounds import rate_bound, share_bound
from netlab.pmtu.runs import Quiet, Search, Shrink

__all__ = ["CONDITIONS", "Card", "share_of"]

CONDITIONS = """\
Sender: qtunnel's path MTU discovery and loss recovery as they are, in virtual time and without encryption;
  CUBIC or BBR; always full packets, half of them small, now and then one, or bursts and silence.
Path: 3 to 9 Mbit/s, 10 to 300 ms, a drop-tail queue of a quarter to four times their product, limited in packets
  or in bytes (a small packet then fits where a large one does not); 0 to 2 flows beside ours that back off like
  TCP. Random loss 0 or 0.5 to 15 %, in a third of the runs in pairs too; up to 5 % reordered, 5 % of ACKs lost.
Receiver: ACK every 2, 4 or 10 packets, at gaps at once or not, max_ack_delay 25 ms.
Paths that stay, also: a blind flow of half or nine tenths of the rate, half a second on and one off; a receiver
  that stops for 300 ms (its buffer 50 kB to 4 MB), a sender that sleeps for 950 ms.
Paths that become narrower: once, after 0.6 to 3.3 s, by 1 to 272 bytes, one in five by 1; queue of at least 8
  packets. RTT: the empty path's, or where others fill its queue the smoothed one, and max_ack_delay; PTO: of when
  suspicion began."""


@dataclass(slots=True)
class Card:
    """Counts over runs; add() takes them in any order."""

    quiet: list[Quiet] = field(default_factory=list)
    shrinks: list[Shrink] = field(default_factory=list)
    searches: dict[float, list[Search]] = field(default_factory=dict)

    @property
    def false_alarms(self) -> int:
        """Convictions of paths that had not changed, those before a shrink too."""
        return sum(run.false_alarms for run in self.quiet) + sum(run.false_alarms for run in self.shrinks)

    @property
    def tested(self) -> list[Shrink]:
        """The runs in which a full-size packet met the narrower path."""
        return [run for run in self.shrinks if run.is_tested]

    @property
    def late(self) -> list[Shrink]:
        """The shrinks that were found too late, or not at all."""
        return [run for run in self.tested if run.within is None or run.within > 1]

    @property
    def too_large(self) -> list[Shrink]:
        """The shrinks after which a size was used that does not get through."""
        return [run for run in self.tested if run.is_too_large]

    def lines(self) -> Iterator[str]:
        """Return the card."""
        yield from CONDITIONS.splitlines()
        if self.quiet:
            yield from self._quiet_lines()
        if self.tested:
            yield from self._shrink_lines()
        for loss, searches in self.searches.items():
            yield from self._search_lines(loss, searches)

    def _quiet_lines(self) -> Iterator[str]:
        seconds = [run.seconds for run in self.quiet]
        hours = (sum(seconds) + sum(run.seconds for run in self.shrinks)) / 3600
        runs = len(self.quiet)
        yield ""
        yield (
            f"Paths that stayed: {runs} runs of {min(seconds):.1f} to {max(seconds):.1f} s, "
            f"{sum(run.packets for run in self.quiet)} packets, "
            f"{sum(run.suspicions for run in self.quiet)} suspicions"
        )
        yield (
            f"  false alarms {self.false_alarms} in {hours:.1f} connection-hours (those below included); "
            f"95 % upper bound {share_bound(self.false_alarms, runs):.4%} of runs, "
            f"{rate_bound(self.false_alarms, hours):.2f} an hour under such conditions"
        )

    def _shrink_lines(self) -> Iterator[str]:
        tested = self.tested
        shares = sorted(run.within for run in tested if run.within is not None)
        times = sorted(run.found_after for run in tested if run.found_after is not None)
        yield ""
        yield (
            f"Paths that became narrower: {len(tested)} ({len(self.shrinks) - len(tested)} more were not counted, "
            "as no full-size packet was sent after)"
        )
        yield (
            f"  not found within 8 RTT + 2 PTO of the first lost full-size packet: {len(self.late)}; "
            f"95 % upper bound {share_bound(len(self.late), len(tested)):.4%}"
        )
        yield f"  of that time it took {_spread(shares, '.0%')}; in seconds {_spread(times, '.2f')}"
        yield f"  gone on with a size that does not get through: {len(self.too_large)}"

    def _search_lines(self, loss: float, searches: Sequence[Search]) -> Iterator[str]:
        ended = [run for run in searches if run.off_by is not None]
        wrong = sum(run.off_by != 0 for run in searches)
        yield ""
        share = wrong / len(searches)
        yield f"Searches at {loss:.0%} loss: {len(searches)}, wrong or no end {wrong} ({share:.2%})"
        yield f"  round trips (of RTT + max_ack_delay) {_spread(sorted(run.round_trips for run in ended), '.1f')}"
        yield f"  flights {_spread(sorted(run.flights for run in ended), 'd')}"
        yield f"  bytes of probes {_spread(sorted(run.probe_bytes for run in ended), 'd')}"


def share_of(values: Iterable[float], share: float) -> float:
    """Return the value that so large a share of the others does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _spread(ordered: Sequence[float], form: str) -> str:
    if not ordered:
        return "none"
    names = (("median", 0.5), ("95 %", 0.95), ("99.9 %", 0.999))
    parts = [f"{name} {share_of(ordered, share):{form}}" for name, share in names]
    return ", ".join((*parts, f"most {ordered[-1]:{form}}"))
