"""Comparing figures with bounds, fairly: a slow machine makes a throughput inconclusive, not wrong.

What was not measured never holds: a criterion whose metric is missing in a run, or is no number, fails and says
so. An experiment leaves out what a tunnel lacks by asking has(), in measuring and in judging alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from netlab.machine import NOISY_STEAL
from netlab.results import Criterion, Outcome, Verdict
from netlab.table import number
from netlab.tunnels.base import Feature


@dataclass(slots=True)
class Judge:
    """Collects the criteria of one outcome. control: the same experiment over plain IP, if it was run.

    lacks: what the tunnel under test does not have.
    """

    outcome: Outcome
    parameters: Mapping[str, Any]
    control: Outcome | None = None
    lacks: frozenset[Feature] = frozenset()

    def has(self, feature: Feature) -> bool:
        """Tell whether the tunnel under test has a feature."""
        return feature not in self.lacks

    def fact(self, what: str, value: str, bound: str, ok: bool, *, note: str = "") -> None:
        """Add something that holds or does not, whatever the machine does meanwhile."""
        self._add(what, value, bound, Verdict.HOLDS if ok else Verdict.FAILS, note)

    def at_most(self, what: str, metric: str, bound: float, unit: str = "") -> None:
        """Demand that no run has more of a metric."""
        self._extreme(
            what, f"at most {number(bound)}", metric, unit, worst=max, holds=lambda value: value <= bound
        )

    def at_least(self, what: str, metric: str, bound: float, unit: str = "") -> None:
        """Demand that no run has less of a metric."""
        self._extreme(
            what, f"at least {number(bound)}", metric, unit, worst=min, holds=lambda value: value >= bound
        )

    def medians(self, what: str, bound: str, *metrics: str) -> list[float] | None:
        """Return each metric's median over the runs; None if one is not known, which has then failed."""
        if flaw := self._flaw(*metrics):
            self.fact(what, "-", bound, False, note=flaw)
            return None
        return [statistics.median(self.outcome.values(metric)) for metric in metrics]

    def throughput(self, what: str, metric: str, *, ceiling: str, share: float) -> None:
        """Demand that the median of a metric (Mbit/s) is at least a share of the median of another, the ceiling.

        Short of it, it is inconclusive if the control fell short of its own ceiling too, or CPU was stolen.
        """
        bound = f"at least {share:.0%}"
        if (figures := self.medians(what, bound, metric, ceiling)) is None:
            return
        found, limit = figures
        if not 0 < limit < math.inf:
            self.fact(what, f"{found:.1f} Mbit/s", bound, False, note=f"its ceiling is {number(limit)}")
            return
        self.timing(
            what,
            f"{found:.1f} Mbit/s ({found / limit:.1%} of {limit:.1f}) {self._spread(metric)}".rstrip(),
            bound,
            ok=found >= share * limit,
            control_ok=self._control_reaches(metric, ceiling, share),
        )

    def timing(self, what: str, value: str, bound: str, *, ok: bool, control_ok: bool = True) -> None:
        """Add something that depends on the machine being quiet: short of it may be inconclusive."""
        verdict, note = Verdict.HOLDS, ""
        if not ok:
            verdict = Verdict.FAILS
            if not control_ok:
                verdict, note = Verdict.INCONCLUSIVE, "plain IP fell short as well"
            elif self.outcome.steal() > NOISY_STEAL:
                verdict, note = Verdict.INCONCLUSIVE, f"{self.outcome.steal():.0%} of the CPU was stolen"
        self._add(what, value, bound, verdict, note)

    def latency(self, what: str, metric: str, *, bound: float) -> None:
        """Demand that the median of a metric (ms) is at most a bound, unless the control's was above it too."""
        limit = f"at most {bound:.1f}"
        if (figures := self.medians(what, limit, metric)) is None:
            return
        other = self.control.median(metric) if self.control is not None else None
        self.timing(
            what,
            f"{figures[0]:.1f} ms {self._spread(metric)}".rstrip(),
            limit,
            ok=figures[0] <= bound,
            control_ok=other is None or not other > bound,
        )

    def doubt(self, what: str, metric: str) -> None:
        """Add that the lab itself went wrong, by a count that should be zero: then nothing else is conclusive."""
        count = number(max(self.outcome.values(metric)))
        self._add(what, count, "at most 0", Verdict.INCONCLUSIVE, "the back end did not keep up")

    def report(self, what: str, metric: str, unit: str = "") -> None:
        """Add a figure that has no bound, if there is one; it must be a figure, though."""
        found = self.outcome.median(metric)
        if found is None:
            return
        if all(map(math.isfinite, self.outcome.values(metric))):
            self._add(what, f"{number(found)} {unit} {self._spread(metric)}".strip(), "-", Verdict.HOLDS, "")
        else:
            self.fact(what, "-", "finite", False, note=f"{metric} is not a number, or infinite")

    def _extreme(
        self,
        what: str,
        bound: str,
        metric: str,
        unit: str,
        *,
        worst: Callable[[list[float]], float],
        holds: Callable[[float], bool],
    ) -> None:
        flaw = self._flaw(metric)
        values = [value for value in self.outcome.values(metric) if not math.isnan(value)]
        shown = f"{number(worst(values))} {unit}".rstrip() if values else "-"
        self.fact(what, shown, bound, not flaw and holds(worst(values)), note=flaw)

    def _flaw(self, *metrics: str) -> str:
        """Say why a metric cannot be judged, "" if they all can."""
        runs = len(self.outcome.samples)
        for metric in metrics:
            values = self.outcome.values(metric)
            if not values:
                return f"{metric} was not measured"
            if len(values) < runs:
                return f"{metric} was measured in {len(values)} of {runs} runs"
            if any(math.isnan(value) for value in values):
                return f"{metric} is not a number"
        return ""

    def _control_reaches(self, metric: str, ceiling: str, share: float) -> bool:
        if self.control is None:
            return True
        found, limit = self.control.median(metric), self.control.median(ceiling)
        return found is None or limit is None or not found < share * limit

    def _spread(self, metric: str) -> str:
        values = self.outcome.values(metric)
        return f"[{number(min(values))} to {number(max(values))}]" if len(values) > 1 else ""

    def _add(self, what: str, value: str, bound: str, verdict: Verdict, note: str) -> None:
        self.outcome.criteria.append(Criterion(name=what, value=value, bound=bound, verdict=verdict, note=note))
