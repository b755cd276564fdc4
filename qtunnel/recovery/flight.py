"""What is in flight: packets enter when sent, and leave acknowledged, lost or discarded."""

from __future__ import annotations

from collections.abc import Iterable

from qtunnel.recovery.congestion.base import LostRun
from qtunnel.recovery.delivery_rate import DeliveryRateSampler
from qtunnel.recovery.results import AckResult, DiscardResult, LossResult
from qtunnel.recovery.sent_packets import (
    ACK_ELICITING,
    CONGESTION,
    DATA,
    IN_FLIGHT,
    MTU_PROBE,
    SentPackets,
    SentRun,
    numbers,
)
from qtunnel.recovery.size_counts import SMALLEST_CLASS, SizeCounts

__all__ = ["Flight", "NewlyAcked"]


class NewlyAcked:
    """What one ACK took out of flight. Runs are None where there is none; the object is used again.

    newest_rated: the newest run that may give a delivery rate sample, so no MTU probe: those leave alone and on
    their own schedule, and their rate is not the path's. after_recovery: bytes sent since a packet number.
    """

    __slots__ = ("after_recovery", "is_ack_eliciting", "newest", "newest_rated")

    def __init__(self) -> None:
        self.newest: SentRun | None = None
        self.newest_rated: SentRun | None = None
        self.is_ack_eliciting = False
        self.after_recovery = 0


class Flight:
    """The unanswered packets of one path, and sums over them. Sizes in bytes of UDP payload, times in seconds.

    ack_eliciting: how many packets a probe timeout can be armed for: those in flight that are no MTU probes.
    last_ack_eliciting_time: when the newest of these was sent, answered or not.
    """

    __slots__ = (
        "_newly_acked",
        "ack_eliciting",
        "bytes_in_flight",
        "delivery",
        "last_ack_eliciting_time",
        "sent",
        "size_counts",
    )

    def __init__(self) -> None:
        self.sent = SentPackets()
        self.delivery = DeliveryRateSampler()
        self.size_counts = SizeCounts()
        self.bytes_in_flight = 0
        self.ack_eliciting = 0
        self.last_ack_eliciting_time = 0.0
        self._newly_acked = NewlyAcked()

    def add(self, first: int, count: int, size: int, now: float, flags: int, payload: object | None) -> None:
        """Note packets sent."""
        if flags & IN_FLIGHT:
            self.bytes_in_flight += count * size
            if not flags & MTU_PROBE:
                self.size_counts[size if size > SMALLEST_CLASS else SMALLEST_CLASS].sent += count
            if flags == DATA:
                self.ack_eliciting += count
                self.last_ack_eliciting_time = now
        self.sent.append(
            SentRun(first, count, size, now, flags, payload, self.delivery.snapshot(), self.bytes_in_flight)
        )

    def take_acked(self, ranges: Iterable[tuple[int, int]], recovery_end: int, result: AckResult) -> NewlyAcked:
        """Take acknowledged packets out and note them in the result. Ranges as in an ACK frame, highest first.

        recovery_end: packets above it may make the window grow.
        """
        newly_acked = self._newly_acked
        newly_acked.newest = newly_acked.newest_rated = None
        newly_acked.is_ack_eliciting = False
        newly_acked.after_recovery = 0
        sent = self.sent
        for first, last in ranges:
            oldest = sent.first_number()
            if oldest is None or last < oldest:
                break
            for run, mask in reversed(sent.take(first, last)):
                if newly_acked.newest is None:
                    newly_acked.newest = run
                    result.largest_newly_acked = run.first + mask.bit_length() - 1
                count = mask.bit_count()
                result.newly_acked += count
                if run.flags == DATA:
                    self.ack_eliciting -= count
                    newly_acked.is_ack_eliciting = True
                    if newly_acked.newest_rated is None:
                        newly_acked.newest_rated = run
                elif run.flags & ACK_ELICITING:
                    newly_acked.is_ack_eliciting = True
                if run.flags & IN_FLIGHT:
                    self._count_acked(run, mask, count, result)
                    if run.first > recovery_end:
                        newly_acked.after_recovery += count * run.size
                if run.payload is not None:
                    result.acked_payloads.append(run.payload)
                    run.payload = None
        self.bytes_in_flight -= result.newly_acked_bytes
        return newly_acked

    def _count_acked(self, run: SentRun, mask: int, count: int, result: AckResult) -> None:
        size = run.size
        result.newly_acked_bytes += count * size
        sizes = result.acked_sizes
        if sizes and sizes[-1][0] == size:
            sizes[-1] = (size, sizes[-1][1] + count)
        else:
            sizes.append((size, count))
        size_count = self.size_counts[size if size > SMALLEST_CLASS else SMALLEST_CLASS]
        if run.flags & MTU_PROBE:
            result.acked_probes += numbers(run, mask)
        else:
            size_count.acked += count
        if size_count.newest_acked is None or run.time_sent > size_count.newest_acked:
            size_count.newest_acked = run.time_sent

    def count_lost(self, lost: Iterable[tuple[SentRun, int]], result: LossResult) -> list[LostRun]:
        """Note packets that loss detection has taken out. Return what congestion control may hear of.

        That is neither MTU probes (RFC 9000 §14.4) nor packets that were not in flight.
        """
        told = []
        delivery = self.delivery
        for run, mask in lost:
            if run.payload is not None:
                result.lost_payloads.append(run.payload)
                run.payload = None
            if not run.flags & IN_FLIGHT:
                continue
            count, size = mask.bit_count(), run.size
            total = count * size
            self.bytes_in_flight -= total
            if run.flags & MTU_PROBE:
                result.lost_probes += numbers(run, mask)
                continue
            if run.flags == DATA:
                self.ack_eliciting -= count
            result.lost += count
            result.lost_bytes += total
            result.lost_sizes.append((size, count, run.time_sent))
            self.size_counts[size].lost += count
            delivery.on_lost(total)
            _, _, _, lost_before, is_app_limited = run.snapshot
            told.append(
                LostRun(
                    size=total,
                    sent_size=run.count * size,
                    tx_in_flight=run.tx_in_flight,
                    lost_since_sent=delivery.lost - lost_before,
                    is_app_limited=is_app_limited,
                )
            )
        return told

    def discard(self, larger_than: int) -> DiscardResult:
        """Take out every packet larger than a size, and say what it was."""
        result = DiscardResult()
        for run in self.sent.take_where(lambda each: each.size > larger_than):
            count = run.outstanding.bit_count()
            result.discarded += count
            if run.flags & IN_FLIGHT:
                result.discarded_bytes += count * run.size
            if run.flags == DATA:
                self.ack_eliciting -= count
            elif run.flags & MTU_PROBE:
                result.probes += numbers(run, run.outstanding)
            if run.payload is not None:
                result.payloads.append(run.payload)
                run.payload = None
        self.bytes_in_flight -= result.discarded_bytes
        return result

    def largest_unanswered(self) -> int:
        """Return the size of the largest packet in flight that is no MTU probe; 0: there is none."""
        return max((run.size for run in self.sent.runs() if run.flags & CONGESTION == IN_FLIGHT), default=0)

    def take_payloads(self, most: int) -> list[object]:
        """Take the payloads of the oldest packets that have one; the packets stay in flight without."""
        payloads: list[object] = []
        for run in self.sent.runs():
            if len(payloads) == most:
                break
            if run.payload is not None and run.flags & ACK_ELICITING and not run.flags & MTU_PROBE:
                payloads.append(run.payload)
                run.payload = None
        return payloads
