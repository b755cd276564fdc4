"""A sender, a bottleneck and a receiver in virtual time: what a congestion controller does on a path.

The bottleneck is one queue with a rate, a delay behind it and room for so many bytes; what does not fit is
dropped. The same seed gives the same run.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery
from tests.unit.recovery.range_set import RangeSet

SIZE = 1400
MAX_BURST = 46
START = 1000.0


def mbit(rate: float) -> float:
    """Return bytes a second."""
    return rate * 1e6 / 8


@dataclass(kw_only=True)
class Path:
    """What a packet meets. Rates in bytes a second, times in seconds; may be changed while it runs.

    queue: bytes that may wait. policer_burst: instead of a queue, a token bucket of so many bytes. aggregation:
    ACKs are let through only at multiples of it.
    """

    rate: float = mbit(100)
    rtt: float = 0.04
    queue: float = mbit(100) * 0.04
    loss: float = 0.0
    reorder: float = 0.0
    reorder_delay: float = 0.0
    aggregation: float = 0.0
    policer_burst: float | None = None


@dataclass(kw_only=True)
class Receiver:
    """How the other end acknowledges: every so many packets, or after a delay in seconds."""

    ack_every: int = 4
    max_ack_delay: float = 0.025
    received: RangeSet = field(default_factory=RangeSet)
    unacknowledged: int = 0
    largest_time: float = 0.0


class Bottleneck:
    """One connection over one path. app_rate: bytes a second the sender has to send; None: without end."""

    def __init__(
        self,
        congestion: str,
        path: Path,
        *,
        seed: int = 1,
        app_rate: float | None = None,
        receiver: Receiver | None = None,
    ) -> None:
        self.path = path
        self.receiver = receiver or Receiver()
        self.control = make_congestion_control(congestion, SIZE, seed=seed)
        self.recovery = LossRecovery(
            congestion=self.control, max_ack_delay=self.receiver.max_ack_delay, max_datagram_size=SIZE
        )
        self.app_rate = app_rate
        self.now = START
        self.delivered = 0
        self.sent = 0
        self.dropped = 0
        self.lost = 0
        self.spurious = 0
        self.max_in_flight = 0
        self._app_credit = 0.0
        self._app_time = START
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, str, int]] = []
        self._order = 0
        self._number = 0
        self._link_free = START
        self._tokens = path.policer_burst or 0.0
        self._tokens_time = START
        self._wake: float | None = None
        self._ack_due: float | None = None
        self._acks: dict[int, tuple[list[tuple[int, int]], float]] = {}
        self.on_step: Callable[[], None] = lambda: None

    def limit(self, app_rate: float | None) -> None:
        """Give the sender so many bytes a second to send from now on; None: without end."""
        self.app_rate = app_rate
        self._app_credit = 0.0
        self._app_time = self.now
        self._send()

    def on_the_way(self) -> int:
        """Return how many packets are between sender and receiver."""
        return sum(kind == "arrive" for _, _, kind, _ in self._events)

    # The run

    def run(self, seconds: float) -> int:
        """Go on for so long. Return how many bytes reached the receiver meanwhile."""
        before, until = self.delivered, self.now + seconds
        self._send()
        while self._events and self._events[0][0] <= until:
            self.now, _, kind, number = heapq.heappop(self._events)
            if kind == "arrive":
                self._arrive(number)
            elif kind == "ack delay" and self._ack_due is not None and self.now >= self._ack_due:
                self._acknowledge()
            elif kind.startswith("ack "):
                continue
            elif kind == "acked":
                self._take_ack(number)
            elif kind == "wake" and self._wake == self.now:
                self._wake = None
                self._on_wake()
        self.now = until
        return self.delivered - before

    def utilisation(self, seconds: float) -> float:
        """Go on for so long. Return which part of the rate reached the receiver."""
        return self.run(seconds) / (self.path.rate * seconds)

    def run_until(self, condition: Callable[[], bool], limit: float, step: float = 0.005) -> float:
        """Go on until a condition holds. Return how long it took; fail after limit seconds."""
        start = self.now
        while not condition():
            assert self.now - start < limit, f"not after {limit} s: {self.control}"
            self.run(step)
        return self.now - start

    def _at(self, when: float, kind: str, number: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, kind, number))

    # The sender

    def _available(self) -> int:
        """Return how many packets the application has."""
        if self.app_rate is None:
            return MAX_BURST
        self._app_credit = min(self._app_credit + (self.now - self._app_time) * self.app_rate, 1e6)
        self._app_time = self.now
        return int(self._app_credit // SIZE)

    def _send(self) -> None:
        recovery = self.recovery
        while True:
            available = self._available()
            room = recovery.can_send() // SIZE
            budget = recovery.pacer.budget(self.now) // SIZE
            if available <= 0 and room > 0 and budget > 0:
                recovery.on_app_limited()
            count = min(available, room, budget, MAX_BURST)
            if count <= 0:
                break
            self._transmit(count)
        self._arm(has_data=available > 0, has_room=room > 0)

    def _transmit(self, count: int) -> None:
        first = self._number
        self._number += count
        if self.app_rate is not None:
            self._app_credit -= count * SIZE
        self.recovery.on_packets_sent(first, count, SIZE, self.now)
        self.max_in_flight = max(self.max_in_flight, self.recovery.bytes_in_flight)
        self.sent += count
        for number in range(first, first + count):
            self._enqueue(number)

    def _arm(self, *, has_data: bool, has_room: bool) -> None:
        times = [self.recovery.get_timer()]
        if has_data and has_room:
            times.append(self.recovery.pacer.next_time(self.now))
        if not has_data and self.app_rate:
            times.append(self.now + max(SIZE - self._app_credit, 0.0) / self.app_rate + 1e-6)
        due = [max(each, self.now + 1e-7) for each in times if each is not None]
        if due:
            wake = min(due)
            if self._wake is None or wake != self._wake:
                self._wake = wake
                self._at(wake, "wake")
        else:
            self._wake = None

    def _on_wake(self) -> None:
        timer = self.recovery.get_timer()
        if timer is not None and self.now >= timer:
            result = self.recovery.on_timeout(self.now)
            self.lost += result.lost
            if result.send_probe:
                self._transmit(1)
        self._send()
        self.on_step()

    def _take_ack(self, acked: int) -> None:
        ranges, ack_delay = self._acks.pop(acked)
        result = self.recovery.on_ack_received(ranges, ack_delay, self.now)
        self.lost += result.lost
        self.spurious += result.spurious
        self._send()
        self.on_step()

    # The path

    def _enqueue(self, number: int) -> None:
        path, now = self.path, self.now
        if path.loss and self._random.random() < path.loss:
            self.dropped += 1
            return
        if path.policer_burst is not None:
            self._tokens = min(self._tokens + (now - self._tokens_time) * path.rate, path.policer_burst)
            self._tokens_time = now
            if self._tokens < SIZE:
                self.dropped += 1
                return
            self._tokens -= SIZE
            departure = now
        else:
            self._link_free = max(self._link_free, now)
            if (self._link_free - now) * path.rate + SIZE > path.queue + SIZE:
                self.dropped += 1
                return
            self._link_free += SIZE / path.rate
            departure = self._link_free
        arrival = departure + path.rtt / 2
        if path.reorder and self._random.random() < path.reorder:
            arrival += path.reorder_delay
        self._at(arrival, "arrive", number)

    # The receiver

    def _arrive(self, number: int) -> None:
        receiver = self.receiver
        in_order = not receiver.received or number == receiver.received.highest + 1
        if not receiver.received or number > receiver.received.highest:
            receiver.largest_time = self.now
        receiver.received.add(number, number + 1)
        receiver.received.cap(64)
        self.delivered += SIZE
        receiver.unacknowledged += 1
        if receiver.unacknowledged >= receiver.ack_every or not in_order:
            self._acknowledge()
        elif self._ack_due is None:
            self._ack_due = self.now + receiver.max_ack_delay
            self._at(self._ack_due, "ack delay")

    def _acknowledge(self) -> None:
        receiver = self.receiver
        receiver.unacknowledged = 0
        self._ack_due = None
        self._order += 1
        self._acks[self._order] = (receiver.received.newest_first(64), self.now - receiver.largest_time)
        arrival = self.now + self.path.rtt / 2
        if self.path.aggregation:
            arrival = (arrival // self.path.aggregation + 1) * self.path.aggregation
        self._at(arrival, "acked", self._order)
