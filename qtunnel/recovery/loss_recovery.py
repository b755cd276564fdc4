"""Loss recovery for one packet number space (RFC 9002), by runs and ranges: no work for each packet.

    on_packets_sent      a burst is one record
    on_ack_received      ranges in; what was acknowledged, lost, found not lost after all
    get_timer            when on_timeout wants to be called: a loss by time, else a probe timeout
    can_send, pacer      how much may be sent now, by the window and by the rate

Where the packet plane needs more than RFC 9002 gives it: MTU probes, whose loss no controller hears of; packets
discarded by size, when a path has become narrower; our own stalls, which prove nothing about the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qtunnel.recovery.congestion.base import AckSample, CongestionControl, LossSample, initial_window
from qtunnel.recovery.flight import Flight, NewlyAcked
from qtunnel.recovery.loss import (
    CLOCK_ERROR,
    K_PACKET_THRESHOLD,
    MAX_PACKET_THRESHOLD,
    Stall,
    detect_lost,
    loss_delay,
)
from qtunnel.recovery.lost_packets import LostPackets
from qtunnel.recovery.pacer import Pacer
from qtunnel.recovery.persistent_congestion import K_PERSISTENT_CONGESTION_THRESHOLD, is_persistent_congestion
from qtunnel.recovery.pto import backoff, pto_period
from qtunnel.recovery.results import AckResult, DiscardResult, LossResult, TimeoutResult
from qtunnel.recovery.rtt import RttEstimator
from qtunnel.recovery.sent_packets import (
    ACK_ELICITING,
    CONGESTION,
    DATA,
    IN_FLIGHT,
    MTU_PROBE,
    SentRun,
    numbers,
)
from qtunnel.recovery.size_counts import SizeCounts
from qtunnel.recovery.window_use import WindowUse

__all__ = ["LossRecovery"]

MAX_PROBE_PAYLOADS: Final = 2
"""As many packets as a probe timeout may send (RFC 9002 §6.2.4)."""


class LossRecovery:
    """What is in flight on one path, and what becomes of it. Times in seconds, sizes in bytes of UDP payload.

    max_ack_delay is the peer's. initial_rtt stands for the RTT until one was measured; what the handshake
    measured is better: give it to `rtt.update`.

    Every call may move the timer: ask get_timer after it.
    """

    __slots__ = (
        "_ecn_ce",
        "_flight",
        "_known_ranges",
        "_loss_time",
        "_lost",
        "_restart_after",
        "_sample",
        "_stall",
        "_window_use",
        "congestion",
        "largest_acked",
        "largest_sent",
        "max_ack_delay",
        "max_datagram_size",
        "pacer",
        "packet_threshold",
        "pto_count",
        "rtt",
    )

    def __init__(
        self,
        *,
        congestion: CongestionControl,
        max_ack_delay: float,
        initial_rtt: float = 0.333,
        max_datagram_size: int = 1200,
    ) -> None:
        self.congestion = congestion
        self.pacer = Pacer(congestion, max_datagram_size)
        self.rtt = RttEstimator(initial_rtt)
        self.max_ack_delay = max_ack_delay
        self.max_datagram_size = max_datagram_size
        self.pto_count = 0
        self.largest_sent = -1
        self.largest_acked = -1
        self.packet_threshold = K_PACKET_THRESHOLD
        """How many later packets must be acknowledged before one is lost; more after reordering was seen."""
        self._flight = Flight()
        self._lost = LostPackets()
        self._window_use = WindowUse()
        self._stall = Stall()
        self._sample = AckSample()
        self._loss_time: float | None = None
        self._known_ranges: frozenset[tuple[int, int]] = frozenset()
        self._ecn_ce = 0
        # After a discard: the newest packet sent before it. None once one sent after it was acknowledged.
        self._restart_after: int | None = None

    @property
    def bytes_in_flight(self) -> int:
        """Bytes sent and unanswered, MTU probes included."""
        return self._flight.bytes_in_flight

    @property
    def smoothed_rtt(self) -> float:
        """The smoothed RTT; initial_rtt before there is a sample."""
        return self.rtt.smoothed_rtt

    @property
    def rttvar(self) -> float:
        """The RTT's mean deviation."""
        return self.rtt.rttvar

    @property
    def min_rtt(self) -> float:
        """The smallest RTT since the start, or since persistent congestion; infinite without a sample."""
        return self.rtt.min_rtt

    @property
    def latest_rtt(self) -> float:
        """The newest RTT sample; 0 without one."""
        return self.rtt.latest_rtt

    @property
    def size_counts(self) -> SizeCounts:
        """Packets sent, acknowledged and lost by size."""
        return self._flight.size_counts

    def first_outstanding(self) -> int | None:
        """Return the lowest packet number that is unanswered; None when there is none."""
        return self._flight.sent.first_number()

    def runs_from(self, number: int) -> list[SentRun]:
        """Return the unanswered runs that begin at a packet number or above it, oldest first."""
        return self._flight.sent.runs_from(number)

    @property
    def is_cwnd_limited(self) -> bool:
        """Whether the window is what limits the sender, in this round trip or the last one."""
        return self._window_use.is_cwnd_limited(self.congestion.congestion_window, self.congestion.ssthresh)

    # Sending

    def on_packets_sent(
        self,
        first: int,
        count: int,
        size: int,
        now: float,
        *,
        ack_eliciting: bool = True,
        in_flight: bool = True,
        is_mtu_probe: bool = False,
        payload: object | None = None,
    ) -> None:
        """Note packets first to first + count - 1, sent in one go, each of size bytes.

        Numbers rise from call to call; some may be left out. payload: of a single packet, and opaque: it is
        given back once, when the packet is acknowledged, lost or discarded, or when a probe timeout wants it
        sent again. Packets in flight take credit from the pacer here.
        """
        assert first > self.largest_sent
        assert payload is None or count == 1
        flight = self._flight
        flags = DATA
        if is_mtu_probe or not (ack_eliciting and in_flight):
            flags = ack_eliciting * ACK_ELICITING | in_flight * IN_FLIGHT | is_mtu_probe * MTU_PROBE
        self.largest_sent = first + count - 1
        if not in_flight:
            flight.add(first, count, size, now, flags, payload)
            return
        congestion = self.congestion
        if not flight.bytes_in_flight:
            flight.delivery.on_restart(now)
            congestion.on_idle_restart(now)
        flight.add(first, count, size, now, flags, payload)
        self.pacer.on_sent(count * size, now)
        use, in_flight_now = self._window_use, flight.bytes_in_flight
        if in_flight_now > use.most_in_flight:
            use.most_in_flight = in_flight_now
        if in_flight_now + self.max_datagram_size > congestion.congestion_window:
            use.is_full = True

    def can_send(self) -> int:
        """Return how many more bytes the congestion window lets into flight; it may be 0 or less."""
        window = self.congestion.congestion_window
        if self._restart_after is not None:
            window = min(window, initial_window(self.max_datagram_size))
        return window - self._flight.bytes_in_flight

    def on_app_limited(self) -> None:
        """Note that there is nothing more to send although window and pacer would allow it.

        To be called whenever the caller's queue runs dry before can_send and the pacer do. Delivery rates
        measured until what is in flight now has gone say nothing about the path then.
        """
        self._flight.delivery.on_app_limited(self._flight.bytes_in_flight)

    # ACKs

    def on_ack_received(
        self, ranges: Sequence[tuple[int, int]], ack_delay: float, now: float, *, ecn_ce: int | None = None
    ) -> AckResult:
        """Take the ranges of an ACK frame: inclusive (first, last), highest first.

        ack_delay: as the frame has it, seconds. ecn_ce: its count of packets that met congestion, for a path
        whose ECN was validated. The caller has checked that all numbers were sent (RFC 9000 §13.1).
        """
        result = AckResult()
        fresh = ranges if len(ranges) == 1 else self._fresh(ranges)
        # The newest range, mostly the only one to look at, begins after the newest hole.
        if fresh and fresh[-1][0] <= self._lost.highest:
            self._find_arrived(fresh, max(ranges[0][1], self.largest_acked), result, now)
        newly_acked = self._flight.take_acked(fresh, self._lost.period.end, result)
        largest = result.largest_newly_acked
        if newly_acked.newest is None or largest is None:
            return result
        if largest > self.largest_acked:
            self.largest_acked = largest
        if largest == ranges[0][1] and newly_acked.is_ack_eliciting:
            # Only the largest acknowledged is known to have been acknowledged at once (RFC 9002 §5.1).
            rtt = now - newly_acked.newest.time_sent
            self.rtt.update(rtt, min(ack_delay, self.max_ack_delay), now)
            result.rtt_updated = True
        self._window_use.on_acked(largest, self.largest_sent)
        if result.newly_acked_bytes:
            self._fill_sample(newly_acked, result, now)
        if ecn_ce is not None and ecn_ce > self._ecn_ce:
            self._on_ecn_ce(ecn_ce, largest, now)
        self._detect_lost(result, now)
        self.pto_count = 0
        if self._restart_after is not None and largest > self._restart_after:
            self._restart_after = None
        if result.newly_acked_bytes:
            sample = self._sample
            sample.newly_lost_bytes = result.lost_bytes
            sample.bytes_in_flight = self._flight.bytes_in_flight
            recovery_end = self._lost.period.end
            if largest <= recovery_end:
                # Recovery began with this very ACK: all it acknowledges was sent before.
                sample.acked_after_recovery = 0
            elif recovery_end < 0:
                sample.acked_after_recovery = result.newly_acked_bytes
            self.congestion.on_ack(sample)
        return result

    def _fresh(self, ranges: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """Return the ranges that the ACK before did not have.

        After losses an ACK repeats up to 64 ranges, and all but one or two hold nothing new: what is sent later
        has higher numbers.
        """
        known = self._known_ranges
        self._known_ranges = frozenset(ranges)
        return [each for each in ranges if each not in known]

    def _find_arrived(
        self, ranges: Sequence[tuple[int, int]], largest: int, result: AckResult, now: float
    ) -> None:
        """Find packets that had been declared lost (RFC 9002 §6.1), and take back what was done for them."""
        lost = self._lost
        for first, last in ranges:
            for run, mask in lost.take_arrived(first, last):
                if run.flags & MTU_PROBE:
                    result.acked_probes += numbers(run, mask)
                    continue
                count = mask.bit_count()
                result.spurious += count
                self._flight.delivery.on_spurious(count * run.size)
                self._flight.size_counts[run.size].lost -= count
                self._raise_packet_threshold(largest - run.first - (mask & -mask).bit_length() + 2)
                if lost.period.add_spurious(run.first, count):
                    self.congestion.on_spurious_loss(now)

    def _raise_packet_threshold(self, distance: int) -> None:
        # A path that reorders this far will do so again (RFC 9002 §6.1.1 lets it be raised).
        self.packet_threshold = max(self.packet_threshold, min(distance, MAX_PACKET_THRESHOLD))

    def _fill_sample(self, newly_acked: NewlyAcked, result: AckResult, now: float) -> None:
        assert newly_acked.newest is not None
        assert result.largest_newly_acked is not None
        sample, rtt, delivery = self._sample, self.rtt, self._flight.delivery
        newest, rated = newly_acked.newest, newly_acked.newest_rated
        delivery.on_delivered(result.newly_acked_bytes, newest.time_sent, now)
        sample.now = now
        sample.newly_acked_bytes = result.newly_acked_bytes
        sample.acked_after_recovery = newly_acked.after_recovery
        sample.largest_acked = result.largest_newly_acked
        sample.largest_sent = self.largest_sent
        sample.largest_sent_time = newest.time_sent
        sample.rtt = now - newest.time_sent
        sample.smoothed_rtt = rtt.smoothed_rtt
        sample.min_rtt = rtt.min_rtt
        sample.is_cwnd_limited = self.is_cwnd_limited
        sample.delivered = delivery.delivered
        if rated is None:
            sample.has_rate = False
            return
        delivered, delivered_time, first_sent_time, lost, sample.is_app_limited = rated.snapshot
        sample.has_rate = True
        sample.prior_delivered = delivered
        sample.sample_delivered = delivery.delivered - delivered
        sample.interval = max(rated.time_sent - first_sent_time, now - delivered_time)
        sample.tx_in_flight = rated.tx_in_flight
        sample.sample_lost = delivery.lost - lost

    def _on_ecn_ce(self, ecn_ce: int, largest_acked: int, now: float) -> None:
        self._ecn_ce = ecn_ce
        period = self._lost.period
        starts_recovery = period.begin(largest_acked, self.largest_sent)
        if starts_recovery:
            period.forbid_undo()
        self.congestion.on_ecn_ce(now, starts_recovery=starts_recovery)

    # Loss

    def _detect_lost(self, result: LossResult, now: float) -> None:
        flight, stall = self._flight, self._stall
        oldest = flight.sent.first_number()
        if oldest is None or oldest > self.largest_acked:
            self._loss_time = None
            return
        if stall.duration and oldest > stall.through:
            self._stall = stall = Stall()
        lost, self._loss_time = detect_lost(
            flight.sent, self.largest_acked, self.packet_threshold, loss_delay(self.rtt), now, stall
        )
        if not lost:
            return
        result.lost_runs = lost
        told = flight.count_lost(lost, result)
        starts_recovery = self._join_recovery_period(lost)
        if not told:
            return
        self.congestion.on_loss(
            LossSample(
                now=now,
                lost_bytes=result.lost_bytes,
                largest_lost_sent_time=lost[-1][0].time_sent,
                bytes_in_flight=flight.bytes_in_flight,
                delivered=flight.delivery.delivered,
                starts_recovery=starts_recovery,
                ranges=_count_ranges(lost),
                runs=told,
            )
        )
        duration = K_PERSISTENT_CONGESTION_THRESHOLD * self.pto()
        if is_persistent_congestion(lost, duration, self.rtt.first_sample_time):
            self.congestion.on_persistent_congestion(now)
            self._lost.period.let_window_grow()
            self.rtt.reset_min_rtt()
            self.packet_threshold = K_PACKET_THRESHOLD

    def _join_recovery_period(self, lost: Sequence[tuple[SentRun, int]]) -> bool:
        """Put lost packets into the recovery period, or begin one. Return whether one began."""
        period = self._lost.period
        congested = [(run, mask) for run, mask in lost if run.flags & CONGESTION == IN_FLIGHT]
        starts_recovery = False
        if congested:
            run, mask = congested[-1]
            starts_recovery = period.begin(run.first + mask.bit_length() - 1, self.largest_sent)
        for run, mask in congested:
            period.add_lost(run.first, mask.bit_count())
        for run, mask in lost:
            if run.flags & IN_FLIGHT:
                self._lost.remember(run, mask)
        return starts_recovery

    # Time

    def pto(self) -> float:
        """Return the probe timeout's period without backoff (RFC 9002 §6.2.1)."""
        return pto_period(self.rtt, self.max_ack_delay)

    def get_timer(self) -> float | None:
        """Return when to call on_timeout; None while nothing is waited for.

        A loss by time comes first; a probe timeout is never armed beside it (RFC 9002 §6.2.1), nor for MTU
        probes alone.
        """
        if self._loss_time is not None:
            return self._loss_time
        if not self._flight.ack_eliciting:
            return None
        return self._flight.last_ack_eliciting_time + self.pto() * backoff(self.pto_count)

    def on_timeout(self, now: float) -> TimeoutResult:
        """Take note that it is now; to be called when get_timer's time has come, harmless before."""
        result = TimeoutResult()
        timer = self.get_timer()
        if timer is None or now + CLOCK_ERROR < timer:
            return result
        if self._loss_time is not None:
            self._detect_lost(result, now)
            return result
        self.pto_count += 1
        result.send_probe = True
        result.largest_unanswered = self._flight.largest_unanswered()
        result.probe_payloads = self._flight.take_payloads(MAX_PROBE_PAYLOADS)
        return result

    def excuse_stall(self, duration: float) -> None:
        """Move every deadline of what is in flight by duration seconds, in which we did not listen.

        To be called after a late wake-up, before the ACKs that came meanwhile are given to on_ack_received and
        before the timer is judged: a packet must not be lost because we read its ACK late.
        """
        oldest = self._flight.sent.first_number()
        if oldest is None:
            return
        so_far = self._stall.duration if oldest <= self._stall.through else 0.0
        self._stall = Stall(self.largest_sent, so_far + duration)
        self._flight.last_ack_eliciting_time += duration
        if self._loss_time is not None:
            self._loss_time += duration

    # A path that changed

    def discard(self, *, larger_than: int) -> DiscardResult:
        """Forget every unanswered packet of more than so many bytes; congestion control does not hear of it.

        ACKs of them that come later are ignored. Until something sent from now on is acknowledged, no more than
        an initial window may be in flight.
        """
        result = self._flight.discard(larger_than)
        if result.discarded:
            self._restart_after = self.largest_sent
            if not self._flight.sent.has_any_through(self.largest_acked):
                self._loss_time = None
        return result

    def discard_everything(self) -> DiscardResult:
        """Forget all that is in flight: the path, or its keys, are gone (RFC 9002 §6.4)."""
        self._loss_time = None
        return self._flight.discard(-1)

    def set_max_datagram_size(self, size: int) -> None:
        """Take a new datagram size, bytes of UDP payload."""
        self.max_datagram_size = size
        self.pacer.max_datagram_size = size
        self.congestion.set_max_datagram_size(size)


def _count_ranges(lost: Sequence[tuple[SentRun, int]]) -> int:
    """Return how many rows of successive numbers there are in runs, oldest first, with bits."""
    ranges = 0
    next_number = -1
    for run, mask in lost:
        ranges += (mask & ~(mask << 1)).bit_count()
        if mask & 1 and run.first == next_number:
            ranges -= 1
        next_number = run.first + mask.bit_length()
    return ranges
