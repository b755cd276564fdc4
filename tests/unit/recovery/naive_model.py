"""RFC 9002 done the obvious way, packet by packet: what the runs and ranges of qtunnel.recovery must agree with.

Everything is a dict of packets and a loop over all of them. Slow, and short enough to be checked against the
RFC's appendices by eye.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf

GRANULARITY = 0.001
CLOCK_ERROR = 1e-6


class Fate(Enum):
    OUTSTANDING = "outstanding"
    ACKED = "acknowledged"
    LOST = "lost"
    DISCARDED = "discarded"


@dataclass
class Packet:
    number: int
    run: int
    size: int
    time_sent: float
    ack_eliciting: bool
    in_flight: bool
    is_mtu_probe: bool
    payload: object | None
    fate: Fate = Fate.OUTSTANDING

    @property
    def is_congestion_controlled(self) -> bool:
        return self.in_flight and not self.is_mtu_probe


@dataclass
class Outcome:
    """What one call brought; packet numbers in order."""

    acked: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    acked_probes: list[int] = field(default_factory=list)
    lost_probes: list[int] = field(default_factory=list)
    acked_payloads: list[object] = field(default_factory=list)
    lost_payloads: list[object] = field(default_factory=list)
    rtt_updated: bool = False
    send_probe: bool = False


class NaiveRecovery:
    """The sender's state, and in `told` what a congestion controller would have heard."""

    def __init__(self, max_ack_delay: float, initial_rtt: float) -> None:
        self.packets: dict[int, Packet] = {}
        self.told: list[tuple[object, ...]] = []
        self.max_ack_delay = max_ack_delay
        self.latest_rtt = 0.0
        self.smoothed_rtt = initial_rtt
        self.rttvar = initial_rtt / 2
        self.min_rtt = inf
        self.first_rtt_sample: float | None = None
        self.pto_count = 0
        self.loss_time: float | None = None
        self.last_ack_eliciting = 0.0
        self.largest_sent = -1
        self.largest_acked = -1
        self.packet_threshold = 3
        self.excused: dict[int, float] = {}
        self.ecn_ce = 0
        # The recovery period: up to which number, who is in it; the numbers it does not reach down to.
        self.recovery_end = -1
        self.last_recovery_end = -1
        self.members_above = -1
        self.members: set[int] | None = None

    def outstanding(self) -> list[Packet]:
        return [each for each in self.packets.values() if each.fate is Fate.OUTSTANDING]

    @property
    def bytes_in_flight(self) -> int:
        return sum(each.size for each in self.outstanding() if each.in_flight)

    def on_packet_sent(self, packet: Packet) -> None:
        self.packets[packet.number] = packet
        self.largest_sent = packet.number
        if packet.ack_eliciting and packet.in_flight and not packet.is_mtu_probe:
            self.last_ack_eliciting = packet.time_sent

    def on_ack_received(
        self, ranges: list[tuple[int, int]], ack_delay: float, now: float, ecn_ce: int | None
    ) -> Outcome:
        outcome = Outcome()
        numbers = {number for first, last in ranges for number in range(first, last + 1) if number in self.packets}
        self._find_arrived([self.packets[each] for each in sorted(numbers, reverse=True)], ranges, outcome)
        newly_acked = [
            self.packets[each] for each in sorted(numbers) if self.packets[each].fate is Fate.OUTSTANDING
        ]
        if not newly_acked:
            return outcome
        for packet in newly_acked:
            packet.fate = Fate.ACKED
            outcome.acked.append(packet.number)
            if packet.is_mtu_probe:
                outcome.acked_probes.append(packet.number)
            self._give_back(packet, outcome.acked_payloads)
        newest = newly_acked[-1]
        self.largest_acked = max(self.largest_acked, newest.number)
        if newest.number == ranges[0][1] and any(each.ack_eliciting for each in newly_acked):
            self._update_rtt(now - newest.time_sent, min(ack_delay, self.max_ack_delay), now)
            outcome.rtt_updated = True
        if ecn_ce is not None and ecn_ce > self.ecn_ce:
            self.ecn_ce = ecn_ce
            starts = self._begin_recovery(newest.number)
            if starts:
                self.members = None
            self.told.append(("ecn", starts))
        self._detect_lost(outcome, now)
        self.pto_count = 0
        acked_bytes = sum(each.size for each in newly_acked if each.in_flight)
        if acked_bytes:
            growing = sum(each.size for each in newly_acked if each.in_flight and each.number > self.recovery_end)
            self.told.append(("ack", acked_bytes, growing))
        return outcome

    def _find_arrived(self, acked: list[Packet], ranges: list[tuple[int, int]], outcome: Outcome) -> None:
        largest = max(self.largest_acked, ranges[0][1])
        period_is_undone = False
        for packet in acked:
            if packet.fate is not Fate.LOST:
                continue
            packet.fate = Fate.ACKED
            if packet.is_mtu_probe:
                outcome.acked_probes.append(packet.number)
            if not packet.is_congestion_controlled:
                continue
            outcome.arrived.append(packet.number)
            self.packet_threshold = max(self.packet_threshold, min(largest - packet.number + 1, 64))
            if self.members is not None and packet.number in self.members:
                self.members.discard(packet.number)
                period_is_undone = not self.members
        if period_is_undone:
            self.members = None
            self.recovery_end = self.last_recovery_end = self.members_above
            self.told.append(("spurious",))

    def _update_rtt(self, latest: float, ack_delay: float, now: float) -> None:
        self.latest_rtt = latest
        if self.first_rtt_sample is None:
            self.min_rtt = self.smoothed_rtt = latest
            self.rttvar = latest / 2
            self.first_rtt_sample = now
            return
        self.min_rtt = min(self.min_rtt, latest)
        adjusted = latest - ack_delay if latest >= self.min_rtt + ack_delay else latest
        self.rttvar = 3 / 4 * self.rttvar + 1 / 4 * abs(self.smoothed_rtt - adjusted)
        self.smoothed_rtt = 7 / 8 * self.smoothed_rtt + 1 / 8 * adjusted

    def _detect_lost(self, outcome: Outcome, now: float) -> None:
        self.loss_time = None
        delay = max(9 / 8 * max(self.latest_rtt, self.smoothed_rtt), GRANULARITY)
        lost = []
        for packet in self.outstanding():
            if packet.number > self.largest_acked:
                continue
            lost_at = packet.time_sent + delay + self.excused.get(packet.number, 0.0)
            if lost_at <= now + CLOCK_ERROR or self.largest_acked >= packet.number + self.packet_threshold:
                lost.append(packet)
            else:
                self.loss_time = lost_at if self.loss_time is None else min(self.loss_time, lost_at)
        for packet in lost:
            packet.fate = Fate.LOST
            self._give_back(packet, outcome.lost_payloads)
            if packet.is_mtu_probe:
                outcome.lost_probes.append(packet.number)
        controlled = [each for each in lost if each.is_congestion_controlled]
        if not controlled:
            return
        outcome.lost += [each.number for each in controlled]
        starts = self._begin_recovery(controlled[-1].number)
        if self.members is not None:
            self.members |= {each.number for each in controlled if each.number > self.members_above}
        self.told.append(("loss", sum(each.size for each in controlled), starts))
        if self._is_persistent_congestion(lost):
            self.told.append(("persistent congestion",))
            self.recovery_end = -1
            self.min_rtt = self.latest_rtt
            self.packet_threshold = 3

    def _begin_recovery(self, number: int) -> bool:
        if number <= self.recovery_end:
            return False
        self.members_above = self.last_recovery_end
        self.recovery_end = self.last_recovery_end = self.largest_sent
        self.members = set()
        return True

    def _is_persistent_congestion(self, lost: list[Packet]) -> bool:
        if self.first_rtt_sample is None:
            return False
        duration = 3 * self.pto()
        ends = [
            each
            for each in lost
            if each.ack_eliciting and not each.is_mtu_probe and each.time_sent > self.first_rtt_sample
        ]
        return any(
            later.time_sent - earlier.time_sent > duration and self._all_lost_between(earlier, later, lost)
            for earlier in ends
            for later in ends
        )

    def _all_lost_between(self, earlier: Packet, later: Packet, lost: list[Packet]) -> bool:
        """Lost now, or gone before without being acknowledged; the latter not within a run that is lost now."""
        now_lost = {each.number for each in lost}
        runs = {each.run for each in lost}
        for number in range(earlier.number + 1, later.number):
            packet = self.packets.get(number)
            if packet is None or number in now_lost:
                continue
            if packet.fate in (Fate.ACKED, Fate.OUTSTANDING) or packet.run in runs:
                return False
        return True

    def pto(self) -> float:
        return self.smoothed_rtt + max(4 * self.rttvar, GRANULARITY) + self.max_ack_delay

    def get_timer(self) -> float | None:
        if self.loss_time is not None:
            return self.loss_time
        if not any(each.ack_eliciting and each.in_flight and not each.is_mtu_probe for each in self.outstanding()):
            return None
        # The backoff ends somewhere, long after any idle timeout.
        return self.last_ack_eliciting + self.pto() * 2 ** min(self.pto_count, 16)

    def on_timeout(self, now: float) -> Outcome:
        outcome = Outcome()
        timer = self.get_timer()
        if timer is None or now + CLOCK_ERROR < timer:
            return outcome
        if self.loss_time is not None:
            self._detect_lost(outcome, now)
            return outcome
        self.pto_count += 1
        outcome.send_probe = True
        return outcome

    def excuse_stall(self, duration: float) -> None:
        # One excuse for all that is out, as there is one number for it: it grows until all of these are answered.
        so_far = max((self.excused.get(each.number, 0.0) for each in self.outstanding()), default=0.0)
        for packet in self.outstanding():
            self.excused[packet.number] = so_far + duration
        self.last_ack_eliciting += duration
        if self.loss_time is not None:
            self.loss_time += duration

    def discard(self, larger_than: int) -> list[int]:
        discarded = [each for each in self.outstanding() if each.size > larger_than]
        for packet in discarded:
            packet.fate = Fate.DISCARDED
        if not any(each.number <= self.largest_acked for each in self.outstanding()):
            self.loss_time = None
        return [each.number for each in discarded]

    @staticmethod
    def _give_back(packet: Packet, to: list[object]) -> None:
        if packet.payload is not None:
            to.append(packet.payload)
            packet.payload = None
