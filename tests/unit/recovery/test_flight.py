"""qtunnel.recovery.flight."""

from __future__ import annotations

from qtunnel.recovery.flight import Flight
from qtunnel.recovery.results import AckResult, LossResult
from qtunnel.recovery.sent_packets import ACK_ELICITING, DATA, IN_FLIGHT, MTU_PROBE

PROBE = DATA | MTU_PROBE


def test_only_what_is_in_flight_counts_as_such() -> None:
    flight = Flight()
    flight.add(0, 3, 1200, 1.0, DATA, None)
    flight.add(3, 1, 60, 1.1, 0, None)
    flight.add(4, 1, 1400, 1.2, PROBE, None)
    flight.add(5, 1, 1200, 1.3, IN_FLIGHT, None)
    assert flight.bytes_in_flight == 3 * 1200 + 1400 + 1200
    assert flight.ack_eliciting == 3
    assert flight.last_ack_eliciting_time == 1.0


def test_an_acknowledgment_takes_out_and_tells_sizes_newest_first() -> None:
    flight = Flight()
    flight.add(0, 2, 1200, 1.0, DATA, None)
    flight.add(2, 3, 1400, 1.1, DATA, None)
    flight.add(5, 2, 1400, 1.2, DATA, None)
    result = AckResult()
    newly_acked = flight.take_acked([(0, 5)], -1, result)
    assert newly_acked.newest is not None
    assert (newly_acked.newest.first, result.largest_newly_acked) == (5, 5)
    assert result.acked_sizes == [(1400, 4), (1200, 2)]
    assert result.newly_acked_bytes == 4 * 1400 + 2 * 1200
    assert flight.bytes_in_flight == 1400
    assert flight.ack_eliciting == 1


def test_only_what_was_sent_after_recovery_began_makes_the_window_grow() -> None:
    flight = Flight()
    flight.add(0, 2, 1200, 1.0, DATA, None)
    flight.add(2, 3, 1400, 1.1, DATA, None)
    assert flight.take_acked([(0, 4)], 1, AckResult()).after_recovery == 3 * 1400


def test_a_probe_gives_no_rate_sample_but_is_told() -> None:
    flight = Flight()
    flight.add(0, 1, 1200, 1.0, DATA, None)
    flight.add(1, 1, 1450, 1.0, PROBE, None)
    result = AckResult()
    newly_acked = flight.take_acked([(0, 1)], -1, result)
    assert newly_acked.newest is not None
    assert newly_acked.newest_rated is not None
    assert (newly_acked.newest.first, newly_acked.newest_rated.first) == (1, 0)
    assert result.acked_probes == [1]


def test_what_only_acknowledges_elicits_nothing() -> None:
    flight = Flight()
    flight.add(0, 1, 60, 1.0, 0, "acks")
    result = AckResult()
    assert not flight.take_acked([(0, 0)], -1, result).is_ack_eliciting
    assert (result.newly_acked, result.newly_acked_bytes, result.acked_payloads) == (1, 0, ["acks"])


def test_an_ack_eliciting_packet_of_any_kind_is_one() -> None:
    flight = Flight()
    flight.add(0, 1, 60, 1.0, ACK_ELICITING, None)
    assert flight.take_acked([(0, 0)], -1, AckResult()).is_ack_eliciting


def test_congestion_control_hears_of_data_and_padding_lost_and_of_nothing_else() -> None:
    flight = Flight()
    for number, flags in enumerate((DATA, PROBE, 0, IN_FLIGHT)):
        flight.add(number, 1, 1300, 1.0, flags, None)
    lost = [(run, run.outstanding) for run in flight.sent.runs()]
    result = LossResult()
    told = flight.count_lost(lost, result)
    assert [(each.size, each.lost_since_sent) for each in told] == [(1300, 1300), (1300, 2600)]
    assert (result.lost, result.lost_bytes, result.lost_probes) == (2, 2600, [1])
    assert flight.bytes_in_flight == 0
    assert flight.delivery.lost == 2600


def test_discarding_by_size_leaves_the_smaller_ones() -> None:
    flight = Flight()
    flight.add(0, 2, 1200, 1.0, DATA, None)
    flight.add(2, 1, 1400, 1.0, DATA, "stream")
    flight.add(3, 1, 1450, 1.0, PROBE, None)
    flight.add(4, 1, 1300, 1.0, 0, None)
    result = flight.discard(1200)
    assert (result.discarded, result.discarded_bytes) == (3, 2850)
    assert (result.payloads, result.probes) == (["stream"], [3])
    assert flight.bytes_in_flight == 2400
    assert flight.ack_eliciting == 2


def test_payloads_to_send_again_are_the_oldest_and_no_probes() -> None:
    flight = Flight()
    flight.add(0, 1, 1450, 1.0, PROBE, "probe")
    for number in range(1, 5):
        flight.add(number, 1, 60, 1.0, DATA if number != 2 else 0, f"payload {number}")
    assert flight.take_payloads(2) == ["payload 1", "payload 3"]
    assert flight.take_payloads(2) == ["payload 4"]
    assert flight.bytes_in_flight == 1450 + 3 * 60


def test_sizes_are_counted_without_probes_but_for_the_proof() -> None:
    flight = Flight()
    flight.add(0, 4, 1400, 1.0, DATA, None)
    flight.add(4, 1, 1400, 2.0, PROBE, None)
    flight.take_acked([(3, 4), (1, 1)], -1, AckResult())
    count = flight.size_counts[1400]
    assert (count.sent, count.acked, count.lost, count.newest_acked) == (4, 2, 0, 2.0)
