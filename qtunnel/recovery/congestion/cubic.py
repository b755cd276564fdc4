"""CUBIC (RFC 9438), with HyStart++ in front. Windows in bytes where the RFC has segments.

W_cubic(t) = C * (t - K)^3 + W_max           W_max  ____......____ /
                                                  /               convex: searching for more
concave: back to what it was before the loss     /
                                                |<---- K ---->|
"""

from __future__ import annotations

from typing import Final

from qtunnel.recovery.congestion.base import AckSample
from qtunnel.recovery.congestion.loss_based import LossBased

__all__ = ["BETA_CUBIC", "C", "Cubic"]

C: Final = 0.4
"""Segments per cubed second (RFC 9438 §5.1)."""
BETA_CUBIC: Final = 0.7
ALPHA_CUBIC: Final = 3 * (1 - BETA_CUBIC) / (1 + BETA_CUBIC)
"""Segments per window, so that on average it does as well as Reno (RFC 9438 §4.3)."""
MAX_GROWTH: Final = 1.5
"""Of the window in one round trip."""


class Cubic(LossBased):
    """A window that is a cubic function of the time since the last loss, and never grows slower than Reno's."""

    BETA = BETA_CUBIC
    name = "cubic"

    __slots__ = ("_cwnd_prior", "_k", "_last_ack", "_t_epoch", "_w_est", "_w_max")

    def __init__(self, max_datagram_size: int) -> None:
        super().__init__(max_datagram_size)
        self._w_max = 0.0  # 0: undefined, the next epoch starts at K = 0
        self._cwnd_prior = 0.0
        self._w_est = 0.0
        self._k = 0.0
        self._t_epoch = -1.0  # negative: the next ACK begins an epoch
        self._last_ack = 0.0

    def _avoid(self, sample: AckSample, acked: int) -> None:
        now = sample.now
        self._last_ack = now
        if self._t_epoch < 0:
            self._begin_epoch(now)
        t = now - self._t_epoch
        window = self._window
        alpha = 1.0 if self._w_est >= self._cwnd_prior else ALPHA_CUBIC
        self._w_est += alpha * self.max_datagram_size * acked / window
        if self._w_cubic(t) < self._w_est:
            self._window = max(window, self._w_est)
            return
        target = min(max(self._w_cubic(t + sample.smoothed_rtt), window), MAX_GROWTH * window)
        self._window = window + (target - window) * acked / window

    def _w_cubic(self, t: float) -> float:
        offset = t - self._k
        return C * self.max_datagram_size * offset * offset * offset + self._w_max

    def _begin_epoch(self, now: float) -> None:
        self._t_epoch = now
        self._w_est = self._window
        if self._w_max <= self._window:
            # No loss to come back from (RFC 9438 §4.10), or the window was left above it: K is 0.
            self._w_max = self._window
            self._k = 0.0
        else:
            self._k = ((self._w_max - self._window) / (C * self.max_datagram_size)) ** (1 / 3)

    def _stand_still(self, now: float) -> None:
        # The time in which the window was not used is no time of the epoch (RFC 9438 §4.2, §5.8).
        if self._t_epoch >= 0:
            self._t_epoch += max(now - self._last_ack, 0.0)
        self._last_ack = now

    def _reduce(self, now: float) -> None:
        window = self._window
        # Fast convergence: a window that did not reach the old one again leaves room to others (§4.7).
        self._w_max = window * (1 + BETA_CUBIC) / 2 if window < self._w_max else window
        self._cwnd_prior = window
        self._t_epoch = -1.0
        super()._reduce(now)

    def _leave_slow_start(self) -> None:
        self._cwnd_prior = self._window
        self._w_max = 0.0
        self._t_epoch = -1.0

    def _on_timeout(self) -> None:
        # The stage after a timeout starts afresh (RFC 9438 §4.8).
        self._w_max = 0.0
        self._t_epoch = -1.0

    def _state(self) -> tuple[float, ...]:
        return (*super()._state(), self._cwnd_prior, self._w_max, self._k, self._t_epoch, self._w_est)

    def _restore(self, state: tuple[float, ...]) -> None:
        super()._restore(state)
        self._cwnd_prior, self._w_max, self._k, self._t_epoch, self._w_est = state[2:]

    def _scale(self, factor: float) -> None:
        super()._scale(factor)
        # In bytes W_cubic scales with the datagram size, so K stays.
        self._w_max *= factor
        self._cwnd_prior *= factor
        self._w_est *= factor
