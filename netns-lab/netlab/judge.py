"""Comparing figures with bounds, fairly: a slow machine makes a throughput inconclusive, not wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netlab.machine import NOISY_STEAL
from netlab.results import Criterion, Outcome, Verdict
from netlab.table import number


@dataclass(slots=True)
class Judge:
    """Collects the criteria of one outcome. control: the same experiment over plain IP, if it was run."""

    outcome: Outcome
    parameters: Mapping[str, Any]
    control: Outcome | None = None

    @property
    def tunnel(self) -> str:
        """The tunnel under test."""
        return self.outcome.tunnel

    def fact(self, what: str, value: str, bound: str, ok: bool, *, note: str = "") -> None:
        """Add something that holds or does not, whatever the machine does meanwhile."""
        self._add(what, value, bound, Verdict.HOLDS if ok else Verdict.FAILS, note)

    def at_most(self, what: str, metric: str, bound: float, unit: str = "") -> None:
        """Demand that no run has more of a metric."""
        values = self.outcome.values(metric)
        if values:
            self.fact(
                what, f"{number(max(values))} {unit}".rstrip(), f"at most {number(bound)}", max(values) <= bound
            )

    def at_least(self, what: str, metric: str, bound: float, unit: str = "") -> None:
        """Demand that no run has less of a metric."""
        values = self.outcome.values(metric)
        if values:
            self.fact(
                what, f"{number(min(values))} {unit}".rstrip(), f"at least {number(bound)}", min(values) >= bound
            )

    def throughput(self, what: str, metric: str, *, ceiling: str, share: float) -> None:
        """Demand that the median of a metric (Mbit/s) is at least a share of the median of another, the ceiling.

        Short of it, it is inconclusive if the control fell short of its own ceiling too, or CPU was stolen.
        """
        found, limit = self.outcome.median(metric), self.outcome.median(ceiling)
        if found is None or limit is None:
            return
        self.timing(
            what,
            f"{found:.1f} Mbit/s ({found / limit:.1%} of {limit:.1f}) {self._spread(metric)}".rstrip(),
            f"at least {share:.0%}",
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
        found = self.outcome.median(metric)
        if found is None:
            return
        other = self.control.median(metric) if self.control is not None else None
        self.timing(
            what,
            f"{found:.1f} ms {self._spread(metric)}".rstrip(),
            f"at most {bound:.1f}",
            ok=found <= bound,
            control_ok=other is None or other <= bound,
        )

    def report(self, what: str, metric: str, unit: str = "") -> None:
        """Add a figure that has no bound."""
        found = self.outcome.median(metric)
        if found is not None:
            self._add(what, f"{number(found)} {unit} {self._spread(metric)}".strip(), "-", Verdict.HOLDS, "")

    def _control_reaches(self, metric: str, ceiling: str, share: float) -> bool:
        if self.control is None:
            return True
        found, limit = self.control.median(metric), self.control.median(ceiling)
        return found is None or limit is None or found >= share * limit

    def _spread(self, metric: str) -> str:
        values = self.outcome.values(metric)
        return f"[{number(min(values))} to {number(max(values))}]" if len(values) > 1 else ""

    def _add(self, what: str, value: str, bound: str, verdict: Verdict, note: str) -> None:
        self.outcome.criteria.append(Criterion(name=what, value=value, bound=bound, verdict=verdict, note=note))
