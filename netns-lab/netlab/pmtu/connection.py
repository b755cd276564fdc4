"""One connection in virtual time: path MTU discovery and loss recovery at one end, a receiver at the other.

No packet is made, only its number and size: some ten microseconds of computing for each. The same seed gives the
same run.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from netlab.pmtu.conditions import Conditions
from netlab.pmtu.link import Link
from netlab.pmtu.receiver import Receiver
from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery, earlier
from qtunnel.pmtud.events import Acquitted, Convicted, PmtudEvent, SearchEnded, SizeChanged, Suspected
from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery
from qtunnel.recovery.results import AckResult, LossResult

__all__ = ["Connection", "Outcome"]

START = 1000.0
SMALL = 90
MAX_BURST = 32
ARRIVE, ACK, WAKE, APP = range(4)
LATE = 0.1
"""Seconds by which a wake-up may be late before it counts as a stall of our own."""


@dataclass(slots=True)
class Outcome:
    """What became of a connection. Times in seconds from its start; first_lost: of the first packet too large.

    bound: 8 round trips, with max_ack_delay in each, and 2 probe timeouts. A round trip is that of the empty path,
    or where others fill its queue the smoothed one when suspicion began. A probe timeout is that of when the
    packet was sent, or suspicion began.
    """

    size: int = 0
    sent: int = 0
    suspicions: int = 0
    acquittals: int = 0
    convictions: list[tuple[float, int, int]] = field(default_factory=list)
    first_lost: float | None = None
    bound: float = 0.0
    usable: float | None = None
    usable_flights: int = 0
    searched: SearchEnded | None = None
    search_time: float | None = None
    probe_bytes: int = 0


class Connection:
    """Sender, path and receiver."""

    def __init__(self, conditions: Conditions, config: PathMtuConfig | None = None) -> None:
        self.c = conditions
        rnd = random.Random(conditions.seed * 7919 + 1)
        self._random = rnd
        self.now = START
        self.end = START + conditions.duration
        self.discovery = PathMtuDiscovery(config or PathMtuConfig(interface=1472))
        self.recovery = LossRecovery(
            congestion=make_congestion_control(conditions.congestion, 1200, seed=conditions.seed),
            max_ack_delay=conditions.max_ack_delay,
            max_datagram_size=self.discovery.size,
        )
        self.link = Link(conditions, rnd, START)
        self.receiver = Receiver(conditions)
        self.outcome = Outcome()
        self.events: list[tuple[float, PmtudEvent]] = []
        self._heap: list[tuple[float, int, int, object]] = []
        self._order = 0
        self._number = 0
        self._wake: float | None = None
        self._ack_timer: float | None = None
        self._buffered = 0
        self._backlog = 0
        self._next_is_small = 0
        self._sender_stops = sorted((START + at, START + at + long) for at, long in conditions.sender_stops)
        self._receiver_stops = sorted((START + at, START + at + long) for at, long in conditions.receiver_stops)
        self._stop_until = 0.0
        self._pto = 0.0
        self._rtt = conditions.rtt

    # The run

    def run(self, *, until_searched: bool = False, until_convicted: bool = False) -> Outcome:
        """Let it happen. Return what came of it."""
        # The handshake has given a first round trip, and 1200 bytes got through.
        self.recovery.rtt.update(self.c.rtt, 0.0, self.now)
        self._tell_rtt()
        self.discovery.on_confirmed(self.now)
        if self.c.app in ("sparse", "bursts"):
            self._push(START, APP)
        self._take_events()
        self._send()
        heap, outcome = self._heap, self.outcome
        while heap and heap[0][0] <= self.end:
            time, _, kind, what = heapq.heappop(heap)
            self.now = time
            if kind == ARRIVE:
                self._on_arrive(what)
            elif kind == ACK:
                self._on_ack(what)
            elif kind == WAKE:
                self._on_wake(time)
            else:
                self._on_app()
            if until_searched and outcome.searched is not None:
                break
            if until_convicted and outcome.convictions:
                break
        outcome.size = self.discovery.size
        outcome.sent = self._number
        outcome.probe_bytes = self.discovery.probe_bytes
        return outcome

    @property
    def seconds(self) -> float:
        """How long it has gone on, in virtual time."""
        return self.now - START

    def _push(self, time: float, kind: int, what: object = None) -> None:
        self._order += 1
        heapq.heappush(self._heap, (time, self._order, kind, what))

    def _sleeps_until(self, time: float, stops: list[tuple[float, float]]) -> float | None:
        for begin, end in stops:
            if begin <= time < end:
                return end
        return None

    # The receiver's side

    def _on_arrive(self, what: object) -> None:
        if what is None:
            if self.receiver.ack_due is not None and self.now >= self.receiver.ack_due:
                self._send_ack(self.receiver.on_due(self.now))
            self._ack_timer = None
        else:
            assert isinstance(what, tuple)
            number, size, was_buffered = what
            if self._receiver_stops and not was_buffered:
                end = self._sleeps_until(self.now, self._receiver_stops)
                if end is not None:
                    if self._buffered + size <= self.c.receive_buffer:
                        self._buffered += size
                        self._push(end, ARRIVE, (number, size, True))
                    return
            if was_buffered:
                self._buffered -= size
            ack = self.receiver.receive(number, self.now)
            if ack is not None:
                self._send_ack(ack)
        due = self.receiver.ack_due
        if due is not None and self._ack_timer is None:
            self._ack_timer = due
            self._push(due, ARRIVE)

    def _send_ack(self, ack: object) -> None:
        if self.c.ack_loss and self._random.random() < self.c.ack_loss:
            return
        self._push(self.now + self.c.rtt / 2, ACK, ack)

    # The sender's side

    def _is_stopped(self, kind: int, what: object) -> bool:
        if not self._sender_stops:
            return False
        end = self._sleeps_until(self.now, self._sender_stops)
        if end is None:
            return False
        if kind == WAKE:
            self._wake = None
        self._stop_until = end
        # ACKs wait in the socket; whatever is due happens when we wake, the sockets being read first.
        self._push(end if kind == ACK else end + 1e-6, kind, what)
        if kind == WAKE:
            self._wake = end + 1e-6
        return True

    def _excuse(self) -> None:
        if self._stop_until and self.now >= self._stop_until:
            begin = max(begin for begin, end in self._sender_stops if end <= self._stop_until)
            self.recovery.excuse_stall(self._stop_until - begin)
            self.discovery.on_stall(self.now)
            self._stop_until = 0.0

    def _on_ack(self, what: object) -> None:
        if self._is_stopped(ACK, what):
            return
        self._excuse()
        assert isinstance(what, tuple)
        _, ranges, ack_delay = what
        result = self.recovery.on_ack_received(ranges, ack_delay, self.now)
        discovery, now = self.discovery, self.now
        if result.rtt_updated:
            self._tell_rtt()
        counts = self.recovery.size_counts
        for size, count in result.acked_sizes:
            if size > discovery.base:
                newest = counts[size].newest_acked
                if newest is not None:
                    discovery.on_packets_acked(size, count, newest, now)
        if result.acked_probes:
            discovery.on_probes_acked(result.acked_probes, now)
        self._take_losses(result)
        self._send()

    def _tell_rtt(self) -> None:
        rtt = self.recovery.rtt
        self.discovery.on_rtt(rtt.latest_rtt, rtt.smoothed_rtt, rtt.min_rtt, self.recovery.pto())

    def _take_losses(self, result: LossResult | AckResult) -> None:
        discovery = self.discovery
        for size, count, sent in result.lost_sizes:
            if size > discovery.base:
                discovery.on_packets_lost(size, count, sent, self.now)
        if result.lost_probes:
            discovery.on_probes_lost(result.lost_probes, self.now)
        self._take_events()

    def _on_wake(self, time: float) -> None:
        if time != self._wake or self._is_stopped(WAKE, None):
            return
        self._wake = None
        self._excuse()
        timer = self.recovery.get_timer()
        if timer is not None and self.now >= timer:
            result = self.recovery.on_timeout(self.now)
            self._take_losses(result)
            if result.send_probe:
                self.discovery.on_pto(result.largest_unanswered, self.now)
                full = self.c.pto_sends_data and not self.discovery.is_holding
                self._transmit(1, self.discovery.size if full else SMALL)
        self.discovery.handle_timer(self.now)
        self._take_events()
        self._send()

    def _on_app(self) -> None:
        if self._is_stopped(APP, None):
            return
        rnd = self._random
        if self.c.app == "sparse":
            self._backlog = min(self._backlog + 1, 20)
            self._next_is_small = min(self._next_is_small + rnd.choice((0, 1, 3)), 20)
            self._push(self.now + rnd.expovariate(1 / 0.1), APP)
        else:
            self._backlog = min(self._backlog + rnd.choice((5, 40, 200)), 200)
            self._push(self.now + rnd.uniform(0.1, 1.5), APP)
        self._send()

    def _send(self) -> None:
        discovery, recovery, now = self.discovery, self.recovery, self.now
        for packet in discovery.packets_to_send(now, recovery.can_send()):
            number = self._transmit(1, packet.size, is_probe=packet.is_probe)
            if packet.is_probe:
                discovery.on_probe_sent(number, packet, now)
        self._take_events()
        is_bulk = self.c.app in ("bulk", "mixed")
        wants = False
        while True:
            size = discovery.size
            if self.c.app == "sparse" and self._next_is_small:
                count, size = min(self._next_is_small, 3), SMALL
            elif discovery.is_holding and size > discovery.base:
                wants = False
                break
            elif self.c.app == "mixed" and self._random.random() < 0.5:
                count, size = 2, SMALL
            else:
                count = MAX_BURST if is_bulk else self._backlog
            wants = count > 0
            room = recovery.can_send() // size
            budget = recovery.pacer.budget(now) // size
            if count <= 0 and room > 0 and budget > 0:
                recovery.on_app_limited()
            count = min(count, room, budget, MAX_BURST)
            if count <= 0:
                wants = wants and room > 0
                break
            if not is_bulk:
                if size == SMALL:
                    self._next_is_small -= count
                else:
                    self._backlog -= count
            self._transmit(count, size)
        self._arm(wants=wants)

    def _transmit(self, count: int, size: int, *, is_probe: bool = False) -> int:
        first = self._number
        self._number += count
        now, link = self.now, self.link
        self.recovery.on_packets_sent(first, count, size, now, is_mtu_probe=is_probe)
        was_fine = link.first_too_big is None
        for number in range(first, first + count):
            arrival = link.send(size, now, is_probe=is_probe)
            if arrival is not None:
                self._push(arrival, ARRIVE, (number, size, False))
        if was_fine and link.first_too_big is not None:
            self.outcome.first_lost = now - START
            self._pto = self.recovery.pto()
        return first

    def _arm(self, *, wants: bool) -> None:
        now = self.now
        due = earlier(self.recovery.get_timer(), self.discovery.get_timer())
        if wants:
            due = earlier(due, self.recovery.pacer.next_time(now))
        if due is None:
            self._wake = None
            return
        due = max(due, now + 1e-7)
        if self._wake is None or abs(due - self._wake) > 1e-9:
            self._wake = due
            self._push(due, WAKE)

    # What discovery says

    def _take_events(self) -> None:
        while (event := self.discovery.next_event()) is not None:
            self._take_event(event)

    def _take_event(self, event: PmtudEvent) -> None:
        outcome, recovery = self.outcome, self.recovery
        self.events.append((self.now - START, event))
        if isinstance(event, Suspected):
            outcome.suspicions += 1
            self._pto = max(self._pto, recovery.pto())
            self._rtt = max(self.c.rtt, recovery.smoothed_rtt) if self.c.competitors else self.c.rtt
        elif isinstance(event, Acquitted):
            outcome.acquittals += 1
        elif isinstance(event, Convicted):
            outcome.bound = 8 * (self._rtt + self.c.max_ack_delay) + 2 * self._pto
            outcome.convictions.append((self.now - START, event.old, event.new))
            gone = recovery.discard(larger_than=event.new)
            self.discovery.on_probes_discarded(gone.probes, self.now)
            recovery.pacer.clear_debt(self.now)
        elif isinstance(event, SizeChanged):
            recovery.set_max_datagram_size(event.new)
            if outcome.usable is None:
                outcome.usable = self.now - START
        elif isinstance(event, SearchEnded) and outcome.searched is None:
            outcome.searched = event
            outcome.search_time = self.now - START
