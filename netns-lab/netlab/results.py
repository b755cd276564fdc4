"""What experiments yield: metrics of each run, criteria on them all, and a verdict."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

Value = float | int | str | None


class Verdict(Enum):
    """How an experiment, or all of a run, ended. The value is the exit code."""

    HOLDS = 0
    FAILS = 1
    INCONCLUSIVE = 2

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> Verdict:
        """Return the worst: one failure fails, else one inconclusive is inconclusive."""
        for verdict in (cls.FAILS, cls.INCONCLUSIVE):
            if verdict in verdicts:
                return verdict
        return cls.HOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that must hold: what it is, what was found, what is allowed."""

    name: str
    value: str
    bound: str
    verdict: Verdict
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Sample:
    """What one run of one experiment on one tunnel has measured.

    series: per name, points of (seconds since the run began, value). events: (seconds, what happened).
    """

    tunnel: str
    number: int
    seed: int
    metrics: dict[str, Value] = field(default_factory=dict)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    events: list[tuple[float, str]] = field(default_factory=list)
    steal: float = 0.0
    calibration: float = 0.0
    seconds: float = 0.0
    began: float = field(default_factory=time.time)

    def elapsed(self) -> float:
        """Return the seconds since the run began."""
        return time.time() - self.began


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All runs of one experiment on one tunnel."""

    tunnel: str
    samples: list[Sample] = field(default_factory=list)
    criteria: list[Criterion] = field(default_factory=list)
    not_applicable: str = ""
    error: str = ""

    def values(self, name: str) -> list[float]:
        """Return a metric's numbers over all runs that have it."""
        found = [sample.metrics.get(name) for sample in self.samples]
        return [float(value) for value in found if isinstance(value, int | float)]

    def median(self, name: str) -> float | None:
        """Return a metric's median over the runs, None if no run has it."""
        values = self.values(name)
        return statistics.median(values) if values else None

    def names(self) -> list[str]:
        """Return the names of all metrics in the order of their first appearance."""
        return list(dict.fromkeys(name for sample in self.samples for name in sample.metrics))

    def steal(self) -> float:
        """Return the median share of steal over the runs."""
        return statistics.median(sample.steal for sample in self.samples) if self.samples else 0.0

    def verdict(self) -> Verdict:
        """Return the worst of all criteria; an error of the lab or the tunnel fails, "not applicable" holds."""
        if self.error:
            return Verdict.FAILS
        return Verdict.of([criterion.verdict for criterion in self.criteria])

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "tunnel": self.tunnel,
            "not_applicable": self.not_applicable or None,
            "error": self.error or None,
            "verdict": self.verdict().name.lower(),
            "criteria": [asdict(c) | {"verdict": c.verdict.name.lower()} for c in self.criteria],
            "runs": [asdict(sample) for sample in self.samples],
        }
