"""What CUBIC and NewReno share: slow start, one reduction per recovery period, undo (RFC 9002 §7)."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from qtunnel.recovery.congestion.base import (
    AckSample,
    LossSample,
    initial_window,
    minimum_window,
    window_pacing_rate,
)
from qtunnel.recovery.congestion.hystart import HyStart

__all__ = ["LossBased"]


class LossBased:
    """A window that grows until packets are lost. Sizes in bytes, times in seconds.

    A subclass says how it grows in congestion avoidance (_avoid) and what it keeps of a loss (_reduce).
    """

    BETA: ClassVar[float]
    """What is left of the window after a loss."""

    name: str

    __slots__ = (
        "_hystart",
        "_undo",
        "_window",
        "congestion_window",
        "max_datagram_size",
        "pacing_rate",
        "ssthresh",
    )

    def __init__(self, max_datagram_size: int) -> None:
        self.max_datagram_size = max_datagram_size
        # Growth comes in fractions of a byte; what others see is whole.
        self._window = float(initial_window(max_datagram_size))
        self.congestion_window = int(self._window)
        self.ssthresh = inf
        self.pacing_rate: float | None = None
        self._hystart: HyStart | None = HyStart()
        self._undo: tuple[float, ...] | None = None

    def on_idle_restart(self, now: float) -> None:
        """Do nothing: sending is paced, so no burst comes of an old window (RFC 9002 §7.8)."""

    def on_ack(self, sample: AckSample) -> None:
        """Grow, if the window was in use and the ACK is of packets sent since the last reduction."""
        acked = sample.acked_after_recovery
        if not sample.is_cwnd_limited or not acked:
            self._stand_still(sample.now)
        elif self._window < self.ssthresh or self._left_slow_start_too_soon(sample):
            self._slow_start(sample, acked)
        else:
            self._avoid(sample, acked)
        self._publish()
        self.pacing_rate = window_pacing_rate(
            self._window, sample.smoothed_rtt, in_slow_start=self._window < self.ssthresh
        )

    def on_loss(self, sample: LossSample) -> None:
        """Reduce the window at once, once per recovery period (RFC 9002 §7.3.2)."""
        if not sample.starts_recovery:
            return
        self._undo = self._state()
        self._reduce(sample.now)
        self._after_reduction()

    def on_ecn_ce(self, now: float, *, starts_recovery: bool) -> None:
        """Reduce the window as for a loss (RFC 9002 §7.1); there is nothing to undo."""
        if starts_recovery:
            self._undo = None
            self._reduce(now)
            self._after_reduction()

    def on_spurious_loss(self, now: float) -> None:
        """Take the reduction back if the window has not grown beyond it anyway (RFC 9438 §4.9.2)."""
        if self._undo is None:
            return
        if self._window < self._undo[0]:
            self._restore(self._undo)
            if self.ssthresh == inf:
                # It is the first slow start again.
                self._hystart = HyStart()
            self._publish()
        self._undo = None

    def on_persistent_congestion(self, now: float) -> None:
        """Go down to the minimum window, from where slow start leads up again (RFC 9002 §7.6.2)."""
        self._window = float(minimum_window(self.max_datagram_size))
        self._on_timeout()
        self._publish()

    def set_max_datagram_size(self, max_datagram_size: int) -> None:
        """Take a new size. The window shrinks with it, by the same factor, and never grows with it.

        As many packets as before of the new size is what the path was seen to carry; as many bytes as before
        would be more packets.
        """
        old, self.max_datagram_size = self.max_datagram_size, max_datagram_size
        if max_datagram_size < old:
            self._scale(max_datagram_size / old)
            self._undo = None
        self._window = max(self._window, float(minimum_window(max_datagram_size)))
        self._publish()

    def _slow_start(self, sample: AckSample, acked: int) -> None:
        growth, is_over = acked, False
        # Only the first slow start: later ones end at ssthresh (RFC 9406 §4.3).
        if self._hystart is not None:
            growth, is_over = self._hystart.on_ack(acked, sample.rtt, sample.largest_acked, sample.largest_sent)
        self._window = min(self._window + growth, max(self.ssthresh, self._window))
        if is_over:
            self.ssthresh = self._window
            self._leave_slow_start()

    def _left_slow_start_too_soon(self, sample: AckSample) -> bool:
        """Return whether slow start goes on: it ended by a delay that has gone, and nothing was lost since."""
        hystart = self._hystart
        if hystart is None or not hystart.was_no_queue(sample.rtt, sample.largest_acked, sample.largest_sent):
            return False
        self._hystart = HyStart()
        self.ssthresh = inf
        return True

    def _after_reduction(self) -> None:
        self._hystart = None
        self._publish()

    def _publish(self) -> None:
        self.congestion_window = int(self._window)

    def _state(self) -> tuple[float, ...]:
        """Return what an undo has to restore, the window first, ssthresh second."""
        return (self._window, self.ssthresh)

    def _restore(self, state: tuple[float, ...]) -> None:
        self._window, self.ssthresh = state[:2]

    def _scale(self, factor: float) -> None:
        self._window *= factor
        self.ssthresh *= factor

    def _reduce(self, now: float) -> None:
        self._window = self.ssthresh = max(self._window * self.BETA, float(minimum_window(self.max_datagram_size)))

    def _avoid(self, sample: AckSample, acked: int) -> None:
        raise NotImplementedError

    def _stand_still(self, now: float) -> None:
        """Take note of an ACK that may not make the window grow."""

    def _leave_slow_start(self) -> None:
        """Take note that slow start ended without a loss."""

    def _on_timeout(self) -> None:
        """Take note of persistent congestion."""
