"""Why the size is what it is: the last things that happened, in sentences. A bounded record, for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from qtunnel.pmtud.sizes import link_mtu

__all__ = ["Step", "Story"]

MAX_STEPS: Final = 64
MAX_DISMISSED: Final = 8
"""Steps of suspicions that came to nothing: on a path that loses packets they would be all that is left."""


@dataclass(slots=True, frozen=True)
class Step:
    """One thing that happened. time: seconds, as given; text: a sentence; size: UDP payload bytes from then on."""

    time: float
    size: int
    text: str


class Story:
    """The newest steps. Sizes are told as link MTUs, which people know."""

    __slots__ = ("_dismissed", "_steps", "_suspicion", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._steps: deque[Step] = deque(maxlen=MAX_STEPS)
        self._dismissed: deque[Step] = deque(maxlen=MAX_DISMISSED)
        self._suspicion: Step | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, oldest first."""
        return tuple(sorted((*self._steps, *self._dismissed), key=lambda step: step.time))

    def add(self, time: float, size: int, text: str) -> None:
        """Tell what happened."""
        self._steps.append(Step(time, size, text))

    def suspect(self, time: float, size: int, text: str) -> None:
        """Tell of a suspicion."""
        self.add(time, size, text)
        self._suspicion = self._steps[-1]

    def dismiss(self, time: float, size: int, text: str) -> None:
        """Tell that the last suspicion came to nothing; few of those are remembered."""
        if self._suspicion is not None and self._suspicion in self._steps:
            self._steps.remove(self._suspicion)
            self._dismissed.append(self._suspicion)
        self._suspicion = None
        self._dismissed.append(Step(time, size, text))

    def name(self, size: int) -> str:
        """Return a size in words."""
        return f"{link_mtu(size, self._version)}"

    def names(self, sizes: Iterable[int]) -> str:
        """Return sizes in words, the largest first, each once."""
        return ", ".join(self.name(size) for size in sorted(set(sizes), reverse=True)) or "none"

    def tell(self, now: float) -> list[str]:
        """Return the sentences, oldest first, each with how long ago it was."""
        return [f"{now - step.time:.3f} s ago: {step.text}" for step in self.steps]
