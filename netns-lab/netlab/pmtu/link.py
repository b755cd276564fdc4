"""The way to the receiver: a drop-tail queue that others use too, then delay, loss and a narrow link.

What becomes of a packet is reckoned when it is sent; nothing happens later, so a packet costs no event.
"""

from __future__ import annotations

import random
from collections import deque

from netlab.pmtu.conditions import Conditions

__all__ = ["Link"]

HEADERS = 28
COMPETING_SIZE = 1500
BLAST_ON = 0.5
BLAST_OFF = 1.0


class Competitor:
    """A flow like TCP: a packet more in each round trip until one is lost, half as many then."""

    __slots__ = ("backs_off_at", "next_time", "window")

    def __init__(self, start: float) -> None:
        self.window = 4.0
        self.next_time = start
        self.backs_off_at = start

    def on_sent(self, taken: bool, rtt: float) -> None:
        """Choose when to send the next. taken: it was not dropped; rtt: with what waits in the queue."""
        now = self.next_time
        if taken:
            self.window += min(1 / self.window, self.window)
        elif now >= self.backs_off_at:
            # Below 1 it is what a retransmission timer's backoff comes to.
            self.window = max(self.window / 2, 0.1)
            self.backs_off_at = now + rtt
        self.next_time = now + rtt / self.window


class Link:
    """One direction. send() answers with the time of arrival, or None."""

    def __init__(self, conditions: Conditions, rnd: random.Random, start: float) -> None:
        self._c = conditions
        self._random = rnd
        self._start = start
        self._free_at = start
        self._departures: deque[float] = deque()
        self._competitors = [Competitor(start + rnd.random()) for _ in range(conditions.competitors)]
        self._blast_next = start if conditions.blast else float("inf")
        self._others_next = start if conditions.blast or conditions.competitors else float("inf")
        self._is_losing = False
        self.first_too_big: float | None = None
        self.too_big = 0
        self.overflowed = 0
        self.lost = 0

    def send(self, size: int, now: float, *, is_probe: bool) -> float | None:
        """Return when a packet of so many bytes of UDP payload arrives; None: never."""
        c = self._c
        if now >= self._others_next:
            self._let_others_send(now)
        departure = self._enqueue(size + HEADERS, now)
        if departure is None:
            self.overflowed += 1
            return None
        limit = c.link
        if c.shrinks is not None and departure >= self._start + c.shrinks[0]:
            limit = c.shrinks[1]
        if size > limit:
            self.too_big += 1
            if self.first_too_big is None and not is_probe:
                self.first_too_big = now
            return None
        if c.loss and self._random.random() < (c.burst_loss if self._is_losing and c.burst_loss else c.loss):
            self._is_losing = True
            self.lost += 1
            return None
        self._is_losing = False
        arrival = departure + c.rtt / 2
        if c.reorder and self._random.random() < c.reorder:
            arrival += c.reorder_delay
        return arrival

    def _enqueue(self, size: int, now: float) -> float | None:
        c, departures = self._c, self._departures
        while departures and departures[0] <= now:
            departures.popleft()
        if c.queue_packets is not None:
            if len(departures) > c.queue_packets:
                return None
        elif c.queue_bytes is not None and max(self._free_at - now, 0.0) * c.rate + size > c.queue_bytes:
            return None
        self._free_at = max(self._free_at, now) + size / c.rate
        departures.append(self._free_at)
        return self._free_at

    def _let_others_send(self, now: float) -> None:
        c = self._c
        while True:
            flow = min(self._competitors, key=_next_time, default=None)
            flow_next = flow.next_time if flow is not None else float("inf")
            self._others_next = min(flow_next, self._blast_next)
            if self._others_next > now:
                return
            taken = self._enqueue(COMPETING_SIZE, self._others_next) is not None
            if flow is not None and flow_next <= self._blast_next:
                flow.on_sent(taken, c.rtt + max(self._free_at - flow_next, 0.0))
            else:
                self._blast_next += COMPETING_SIZE / (c.rate * c.blast)
                if (self._blast_next - self._start) % (BLAST_ON + BLAST_OFF) > BLAST_ON:
                    self._blast_next += BLAST_OFF


def _next_time(flow: Competitor) -> float:
    return flow.next_time
