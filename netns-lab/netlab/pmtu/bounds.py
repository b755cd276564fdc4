"""How often something may still happen that was seen so often, with 95 % confidence."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["rate_bound", "share_bound"]

DOUBT = 0.05
STEPS = 60


def share_bound(seen: int, trials: int) -> float:
    """Return the largest share of trials that is still credible when it was seen so often (Clopper-Pearson)."""
    if seen >= trials:
        return 1.0

    def chance(share: float) -> float:
        """Return how probable it is to see no more than was seen."""
        logs = (
            math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
            + k * math.log(share) + (trials - k) * math.log1p(-share)
            for k in range(seen + 1)
        )  # fmt: skip
        return sum(math.exp(each) for each in logs)

    return _largest(chance, 1.0)


def rate_bound(seen: int, amount: float) -> float:
    """Return the highest rate that is still credible when it was seen so often in an amount of time (Poisson)."""

    def chance(rate: float) -> float:
        mean = rate * amount
        return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(seen + 1))

    return _largest(chance, (10.0 + 5 * seen) / amount)


def _largest(chance: Callable[[float], float], most: float) -> float:
    low, high = 0.0, most
    for _ in range(STEPS):
        middle = (low + high) / 2
        if chance(middle) > DOUBT:
            low = middle
        else:
            high = middle
    return high
