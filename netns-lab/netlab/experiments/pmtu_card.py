"""E9: what the black-hole detector is worth: its false alarms, and the narrower paths it finds, by simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Final, TypeVar

from netlab.errors import LabError
from netlab.experiment import Experiment, Parameter, Trial
from netlab.judge import Judge
from netlab.pmtu.card import Card, share_of
from netlab.pmtu.runs import Search, in_parallel, quiet, search, shrink
from netlab.tunnels.base import Feature

LOSS: Final = 0.02
SEEDS: Final = 10_000_000
"""Each seed of the lab has so many of its own."""
NOTES: Final = 4
T = TypeVar("T")


class PmtuCard(Experiment):
    """Thousands of connections in virtual time, with qtunnel's own discovery and recovery; no network is built."""

    name: ClassVar[str] = "pmtu-card"
    number: ClassVar[str] = "E9"
    title: ClassVar[str] = "path MTU: false alarms and narrower paths found, in simulation"
    about: ClassVar[str] = "takes minutes on two cores; prints a card with conditions and 95 % upper bounds"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "quiet": Parameter(10_000, "connections on paths that stay as they are"),
        "shrinks": Parameter(10_000, "connections on paths that become narrower"),
        "searches": Parameter(
            3_000, "searches at 2 % loss; without loss: one for each link MTU from 1228 to 1500"
        ),
    }
    needs: ClassVar[frozenset[Feature]] = frozenset({Feature.ABLATIONS})

    def measure(self, trial: Trial) -> None:
        """Run all of it and print the card."""
        trial.need(Feature.ABLATIONS)  # it is about qtunnel's own code
        counts = {name: int(trial.parameters[name]) for name in self.parameters}
        if min(counts.values()) < 1:
            raise LabError("a card of nothing says nothing: quiet, shrinks and searches are at least 1")
        first = trial.seed * SEEDS
        card = Card()
        card.quiet += _noting(trial, "paths that stay", in_parallel(quiet, range(first, first + counts["quiet"])))
        seed = first
        while (missing := counts["shrinks"] - len(card.tested)) > 0:
            if seed > first + 2 * counts["shrinks"] + 100:
                raise LabError("most paths became narrower without anyone noticing: there is nothing to count")
            seeds = range(seed, seed + missing)
            card.shrinks += _noting(trial, "paths that become narrower", in_parallel(shrink, seeds))
            seed += missing
        card.searches[0.0] = list(in_parallel(_without_loss, range(1228, 1501)))
        seeds = range(first, first + counts["searches"])
        card.searches[LOSS] = list(in_parallel(partial(search, loss=LOSS), seeds))
        for line in card.lines():
            trial.say(line)
        self._keep(trial, card)

    def _keep(self, trial: Trial, card: Card) -> None:
        for run in (*card.late, *card.too_large)[:NOTES]:
            trial.event(f"seed {run.seed}: found after {run.found_after} s, {run.within} of the time allowed")
        trial.metric("false_alarms", card.false_alarms)
        trial.metric("shrinks", len(card.tested))
        trial.metric("shrinks_late", len(card.late))
        trial.metric("sizes_too_large", len(card.too_large))
        for name, loss in (("clean", 0.0), ("lossy", LOSS)):
            runs = card.searches[loss]
            trips = [each.round_trips for each in runs]
            trial.metric(f"search_{name}_median", share_of(trips, 0.5), "round trips")
            trial.metric(f"search_{name}_p95", share_of(trips, 0.95), "round trips")
            trial.metric(f"search_{name}_wrong", sum(each.off_by != 0 for each in runs) / len(runs) * 100, "%")
            trial.metric(f"search_{name}_bytes", max(each.probe_bytes for each in runs), "bytes at most")

    def judge(self, judge: Judge) -> None:
        """Allow no false alarm and no shrink that is not found in time."""
        judge.at_most("false alarms", "false_alarms", 0)
        judge.at_least("paths that became narrower", "shrinks", float(judge.parameters["shrinks"]))
        judge.at_most("of them found later than 8 RTT + 2 PTO, or never", "shrinks_late", 0)
        judge.at_most("sizes gone on with that do not get through", "sizes_too_large", 0)
        judge.at_most("search without loss, median", "search_clean_median", 4.5, "round trips")
        judge.at_most("search without loss, wrong end", "search_clean_wrong", 0, "%")
        judge.at_most("search without loss, probes", "search_clean_bytes", 30_000, "bytes")
        judge.at_most("search at 2 % loss, 95 %", "search_lossy_p95", 6.5, "round trips")
        judge.at_most("search at 2 % loss, wrong end", "search_lossy_wrong", 0.2, "%")


def _without_loss(link_mtu: int) -> Search:
    return search(link_mtu, 0.0, link_mtu)


def _noting(trial: Trial, what: str, results: Iterable[T]) -> Iterator[T]:
    """Say every thousand how far it is."""
    for number, result in enumerate(results, start=1):
        if number % 2000 == 0:
            trial.event(f"{number} {what}")
        yield result
