"""The windowed maximum filters of BBR (draft-ietf-ccwg-bbr). Values and times in any unit that grows."""

from __future__ import annotations

__all__ = ["MaxBandwidthFilter", "WindowedMaxFilter"]


class WindowedMaxFilter:
    """The maximum of the samples of the last `length` units of time, by Kathleen Nichols' algorithm.

    It keeps the best sample, the best after it, and the best after that: three, whatever the window holds. What
    it forgets is that between them there was another; so it may be a little too old, never too small.
    """

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples = [(0, 0.0)] * 3  # (time, value)

    @property
    def maximum(self) -> float:
        """The maximum; 0 before there was a sample."""
        return self._samples[0][1]

    def update(self, value: float, time: int, length: int) -> float:
        """Add a sample and return the maximum. time must not go back."""
        best, second, third = self._samples
        sample = (time, value)
        if value >= best[1] or time - third[0] > length:
            self._samples = [sample] * 3
            return value
        if value >= second[1]:
            second = third = sample
        elif value >= third[1]:
            third = sample
        if time - best[0] > length:
            # The best is too old. The others take its place; if the second is too old as well, once more.
            best, second, third = second, third, sample
            if time - best[0] > length:
                best, second, third = second, third, sample
        elif second[0] == best[0] and time - best[0] > length // 4:
            # A quarter of the window without a second best: take this one.
            second = third = sample
        elif third[0] == second[0] and time - second[0] > length // 2:
            third = sample
        self._samples = [best, second, third]
        return best[1]


class MaxBandwidthFilter:
    """BBR.max_bw: the maximum of this bandwidth probing cycle and the last one (MaxBwFilterLen is 2)."""

    __slots__ = ("_cycles", "maximum")

    def __init__(self) -> None:
        self._cycles = [0.0, 0.0]
        self.maximum = 0.0

    def update(self, bandwidth: float) -> None:
        """Add a sample of this cycle, bytes a second."""
        if bandwidth > self._cycles[1]:
            self._cycles[1] = bandwidth
            self.maximum = max(self._cycles)

    def advance(self) -> None:
        """Begin the next cycle. One without any sample is no cycle: what is known is kept."""
        if self._cycles[1] == 0:
            return
        self._cycles = [self._cycles[1], 0.0]
        self.maximum = self._cycles[0]
