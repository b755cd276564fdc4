"""HyStart++: leave slow start when the delay rises, before the queue overflows (RFC 9406). Seconds."""

from __future__ import annotations

from math import inf
from typing import Final

__all__ = ["HyStart"]

MIN_RTT_THRESH: Final = 0.004
MAX_RTT_THRESH: Final = 0.016
MIN_RTT_DIVISOR: Final = 8
N_RTT_SAMPLE: Final = 8
CSS_GROWTH_DIVISOR: Final = 4
CSS_ROUNDS: Final = 5


class HyStart:
    """Watches RTTs round by round; for the first slow start only (RFC 9406 §4.3).

    Growth per ACK has no bound (L is infinite), as all sending is paced.

    A delay that rises need not be our doing: others, and what goes the other way, fill queues too. If it falls
    again within Conservative Slow Start, slow start goes on (§4.2). was_no_queue() is the same for later: a window
    in full use while the delay is what it was before it rose has not found the path's limit.
    """

    __slots__ = (
        "_css_baseline_min_rtt",
        "_css_rounds",
        "_current_round_min_rtt",
        "_last_round_min_rtt",
        "_rtt_before_css",
        "_rtt_samples",
        "_window_end",
    )

    def __init__(self) -> None:
        self._window_end = -1
        self._last_round_min_rtt = inf
        self._current_round_min_rtt = inf
        self._rtt_samples = 0
        self._css_baseline_min_rtt = inf
        self._css_rounds = 0
        self._rtt_before_css = inf

    @property
    def is_in_css(self) -> bool:
        """Whether this is Conservative Slow Start."""
        return self._css_baseline_min_rtt < inf

    def on_ack(self, acked_bytes: int, rtt: float, largest_acked: int, largest_sent: int) -> tuple[int, bool]:
        """Return by how many bytes the window grows, and whether slow start is over.

        rtt: of the newest packet acknowledged. largest_acked, largest_sent: packet numbers.
        """
        growth = acked_bytes // CSS_GROWTH_DIVISOR if self.is_in_css else acked_bytes
        self._current_round_min_rtt = min(self._current_round_min_rtt, rtt)
        self._rtt_samples += 1
        self._judge_delay()
        is_over = False
        if largest_acked >= self._window_end:
            is_over = self._end_round()
            self._window_end = largest_sent
        return growth, is_over

    def was_no_queue(self, rtt: float, largest_acked: int, largest_sent: int) -> bool:
        """Return whether slow start was left too soon. To be called for ACKs after it, as on_ack was before.

        Only for ACKs while the window is in use, and as long as nothing was lost.
        """
        self._current_round_min_rtt = min(self._current_round_min_rtt, rtt)
        self._rtt_samples += 1
        if largest_acked < self._window_end:
            return False
        self._window_end = largest_sent
        found, samples = self._current_round_min_rtt, self._rtt_samples
        self._current_round_min_rtt = inf
        self._rtt_samples = 0
        before = self._rtt_before_css
        return samples >= N_RTT_SAMPLE and found < before + _threshold(before) / 2

    def _judge_delay(self) -> None:
        if self._rtt_samples < N_RTT_SAMPLE or self._last_round_min_rtt == inf:
            return
        if self.is_in_css:
            if self._current_round_min_rtt < self._css_baseline_min_rtt:
                # The delay went down again: it was no queue. Back to slow start.
                self._css_baseline_min_rtt = inf
            return
        last = self._last_round_min_rtt
        if self._current_round_min_rtt >= last + _threshold(last):
            self._css_baseline_min_rtt = self._current_round_min_rtt
            self._rtt_before_css = last
            self._css_rounds = 0

    def _end_round(self) -> bool:
        self._last_round_min_rtt = self._current_round_min_rtt
        self._current_round_min_rtt = inf
        self._rtt_samples = 0
        if not self.is_in_css:
            return False
        # The round in which it began counts, though only a part of it is left (RFC 9406 §4.2).
        self._css_rounds += 1
        return self._css_rounds >= CSS_ROUNDS


def _threshold(rtt: float) -> float:
    """Return by how much a delay has to rise from one round to the next to mean a queue."""
    return min(max(MIN_RTT_THRESH, rtt / MIN_RTT_DIVISOR), MAX_RTT_THRESH)
