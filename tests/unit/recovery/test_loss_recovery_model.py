"""qtunnel.recovery.loss_recovery against the naive model, whatever happens in whatever order."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qtunnel.recovery.congestion.base import AckSample, LossSample
from qtunnel.recovery.loss_recovery import LossRecovery
from qtunnel.recovery.results import LossResult
from tests.unit.recovery.naive_model import NaiveRecovery, Outcome, Packet
from tests.unit.recovery.range_set import RangeSet

MAX_ACK_DELAY = 0.025
SIZES = (60, 1200, 1350, 1400)


class Recorder:
    """A congestion control that writes down what it hears."""

    def __init__(self) -> None:
        self.name = "recorder"
        self.congestion_window = 1 << 40
        self.ssthresh = 0.0
        self.pacing_rate: float | None = None
        self.told: list[tuple[object, ...]] = []

    def on_idle_restart(self, now: float) -> None:
        """Not a thing the naive model knows."""

    def on_ack(self, sample: AckSample) -> None:
        self.told.append(("ack", sample.newly_acked_bytes, sample.acked_after_recovery))

    def on_loss(self, sample: LossSample) -> None:
        self.told.append(("loss", sample.lost_bytes, sample.starts_recovery))

    def on_spurious_loss(self, now: float) -> None:
        self.told.append(("spurious",))

    def on_persistent_congestion(self, now: float) -> None:
        self.told.append(("persistent congestion",))

    def on_ecn_ce(self, now: float, *, starts_recovery: bool) -> None:
        self.told.append(("ecn", starts_recovery))

    def set_max_datagram_size(self, max_datagram_size: int) -> None:
        """Never called here."""


class SameAsNaive(RuleBasedStateMachine):
    """Both are told the same; both must answer the same."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.control = Recorder()
        self.recovery = LossRecovery(congestion=self.control, max_ack_delay=MAX_ACK_DELAY)
        self.naive = NaiveRecovery(MAX_ACK_DELAY, 0.333)
        self.next_number = 0
        self.runs = 0
        self.received = RangeSet()
        self.old_acks: list[list[tuple[int, int]]] = []
        self.ecn_ce = 0
        self.given: list[object] = []
        self.returned: list[object] = []

    @rule(
        count=st.integers(1, 9),
        size=st.sampled_from(SIZES),
        kind=st.sampled_from(["data"] * 6 + ["ack only", "padding", "probe"]),
        skip=st.sampled_from([0, 0, 0, 1, 3]),
        with_payload=st.booleans(),
    )
    def send(self, count: int, size: int, kind: str, skip: int, with_payload: bool) -> None:
        first = self.next_number + skip
        self.runs += 1
        if kind == "probe":
            count = 1
        payload = f"payload {first}" if with_payload and count == 1 else None
        if payload is not None:
            self.given.append(payload)
        self.recovery.on_packets_sent(
            first,
            count,
            size,
            self.now,
            ack_eliciting=kind in ("data", "probe"),
            in_flight=kind != "ack only",
            is_mtu_probe=kind == "probe",
            payload=payload,
        )
        for number in range(first, first + count):
            self.naive.on_packet_sent(
                Packet(
                    number,
                    self.runs,
                    size,
                    self.now,
                    kind in ("data", "probe"),
                    kind != "ack only",
                    kind == "probe",
                    payload,
                )
            )
        self.next_number = first + count

    @rule(data=st.data(), newest_only=st.booleans(), ack_delay=st.sampled_from([0.0, 0.004, 0.2]))
    def acknowledge(self, data: st.DataObject, newest_only: bool, ack_delay: float) -> None:
        """Let some packets arrive and their ACK come back; mostly the oldest and the newest."""
        known = sorted(self.naive.packets)
        if not known:
            return
        start = data.draw(st.integers(max(0, len(known) - 30), len(known) - 1))
        arrived = known[start : start + data.draw(st.integers(1, 12))]
        missing = data.draw(st.sets(st.sampled_from(arrived), max_size=3))
        for number in arrived:
            if number not in missing:
                self.received.add(number, number + 1)
        if self.received:
            self.take_ack(self.received.newest_first(1 if newest_only else 64), ack_delay)

    @rule(back=st.integers(0, 3), ack_delay=st.sampled_from([0.0, 0.01]))
    def repeat_an_ack(self, back: int, ack_delay: float) -> None:
        """An ACK that was overtaken, or doubled."""
        if back < len(self.old_acks):
            self.take_ack(self.old_acks[-1 - back], ack_delay)

    @rule(seconds=st.sampled_from([0.0005, 0.004, 0.03, 0.3, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def mark_congestion(self) -> None:
        self.ecn_ce += 1

    @rule(late=st.sampled_from([0.0, 0.0, 0.005]))
    def go_to_timer(self, late: float) -> None:
        timer = self.recovery.get_timer()
        if timer is None:
            return
        self.now = max(self.now, timer) + late
        result = self.recovery.on_timeout(self.now)
        outcome = self.naive.on_timeout(self.now)
        self.compare_losses(result, outcome)
        assert result.send_probe == outcome.send_probe
        # Payloads of a probe timeout leave the packets they were in.
        for payload in result.probe_payloads:
            holder = next(each for each in self.naive.packets.values() if each.payload == payload)
            holder.payload = None
        self.returned += result.probe_payloads

    @rule()
    def timeout_too_early(self) -> None:
        timer = self.recovery.get_timer()
        if timer is None or timer > self.now + 1e-5:
            assert not self.recovery.on_timeout(self.now).send_probe

    @rule(duration=st.sampled_from([0.01, 0.5]))
    def stall(self, duration: float) -> None:
        self.now += duration
        self.recovery.excuse_stall(duration)
        self.naive.excuse_stall(duration)

    @rule(larger_than=st.sampled_from([1200, 1350]))
    def discard(self, larger_than: int) -> None:
        result = self.recovery.discard(larger_than=larger_than)
        discarded = self.naive.discard(larger_than)
        assert result.discarded == len(discarded)
        packets = [self.naive.packets[each] for each in discarded]
        assert sorted(result.probes) == [each.number for each in packets if each.is_mtu_probe]
        assert sorted(map(str, result.payloads)) == sorted(str(each.payload) for each in packets if each.payload)
        self.returned += result.payloads

    def take_ack(self, ranges: list[tuple[int, int]], ack_delay: float) -> None:
        self.old_acks.append(ranges)
        result = self.recovery.on_ack_received(ranges, ack_delay, self.now, ecn_ce=self.ecn_ce)
        outcome = self.naive.on_ack_received(ranges, ack_delay, self.now, self.ecn_ce)
        self.compare_losses(result, outcome)
        packets = [self.naive.packets[each] for each in outcome.acked]
        in_flight = [each for each in packets if each.in_flight]
        assert result.newly_acked == len(packets)
        assert result.newly_acked_bytes == sum(each.size for each in in_flight)
        assert sum(size * count for size, count in result.acked_sizes) == result.newly_acked_bytes
        assert result.largest_newly_acked == (max(outcome.acked) if outcome.acked else None)
        assert result.spurious == len(outcome.arrived)
        assert sorted(result.acked_probes) == sorted(outcome.acked_probes)
        assert result.rtt_updated == outcome.rtt_updated
        assert sorted(map(str, result.acked_payloads)) == sorted(map(str, outcome.acked_payloads))
        self.returned += result.acked_payloads

    def compare_losses(self, result: LossResult, outcome: Outcome) -> None:
        packets = [self.naive.packets[each] for each in outcome.lost]
        assert result.lost == len(packets)
        assert result.lost_bytes == sum(each.size for each in packets)
        assert sum(size * count for size, count, _ in result.lost_sizes) == result.lost_bytes
        assert sorted(result.lost_probes) == outcome.lost_probes
        assert sorted(map(str, result.lost_payloads)) == sorted(map(str, outcome.lost_payloads))
        self.returned += result.lost_payloads

    @invariant()
    def both_agree(self) -> None:
        recovery, naive = self.recovery, self.naive
        assert recovery.bytes_in_flight == naive.bytes_in_flight
        assert recovery.pto_count == naive.pto_count
        assert recovery.packet_threshold == naive.packet_threshold
        assert recovery.largest_acked == naive.largest_acked
        assert recovery.smoothed_rtt == pytest.approx(naive.smoothed_rtt)
        assert recovery.rttvar == pytest.approx(naive.rttvar)
        assert recovery.min_rtt == naive.min_rtt
        assert self.control.told == naive.told
        timer, expected = recovery.get_timer(), naive.get_timer()
        if timer is None or expected is None:
            assert timer == expected
        else:
            assert timer == pytest.approx(expected, abs=1e-9)

    @invariant()
    def a_payload_comes_back_once(self) -> None:
        kept = [each.payload for each in self.naive.outstanding() if each.payload is not None]
        assert sorted(map(str, self.returned + kept)) == sorted(map(str, self.given))

    @invariant()
    def sizes_add_up(self) -> None:
        for size, count in self.recovery.size_counts.items():
            packets = [
                each
                for each in self.naive.packets.values()
                if max(each.size, 1200) == size and each.is_congestion_controlled
            ]
            assert count.sent == len(packets)
            assert 0 <= count.acked + count.lost <= count.sent

    def teardown(self) -> None:
        result = self.recovery.discard_everything()
        assert self.recovery.bytes_in_flight == 0
        assert self.recovery.get_timer() is None
        left = {each.payload for each in self.naive.outstanding() if each.payload is not None}
        assert set(result.payloads) == left
        assert self.recovery.min_rtt == inf or self.recovery.min_rtt >= 0


TestSameAsNaive = SameAsNaive.TestCase
