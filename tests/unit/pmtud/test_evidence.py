"""qtunnel.pmtud.evidence. Sizes in bytes of UDP payload, times in seconds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.pmtud.evidence import COUNT, FALSE_ALARM, MAX_COUNT, MAX_PAIRS, MIN_PAIRS, Evidence, LossRate


@pytest.mark.parametrize(
    ("acked", "lost", "pairs"), [(0, 0, 5), (1999, 0, 3), (980, 20, 4), (850, 150, 8), (5, 900, 9)]
)
def test_the_more_packets_are_lost_the_more_pairs_are_needed(acked: int, lost: int, pairs: int) -> None:
    rate = LossRate()
    rate.add(acked, lost)
    assert rate.pairs_needed == pairs


@given(acked=st.integers(0, 10_000), lost=st.integers(0, 10_000))
def test_so_many_pairs_are_lost_by_chance_once_in_a_million(acked: int, lost: int) -> None:
    rate = LossRate()
    rate.add(acked, lost)
    pairs = rate.pairs_needed
    assert MIN_PAIRS <= pairs <= MAX_PAIRS
    assert pairs == MAX_PAIRS or pairs * math.log(rate.rate) <= math.log(FALSE_ALARM) + 1e-9


def test_the_loss_rate_forgets() -> None:
    rate = LossRate()
    rate.add(0, 1000)
    for _ in range(20):
        rate.add(1000, 0)
    assert rate.rate < 0.01


def test_dpl_52_losses_count_only_while_none_as_large_and_sent_later_was_acknowledged() -> None:
    evidence = Evidence()
    evidence.on_lost(1472, 2, 1.0, 1.1)
    assert (evidence.count, evidence.is_enough, evidence.watch_at) == (2, False, 1.1)
    evidence.on_acked(1400, 5, 2.0)  # smaller
    evidence.on_acked(1472, 5, 0.9)  # sent before
    assert evidence.count == 2
    evidence.on_acked(1472, 1, 1.2)
    assert (evidence.count, evidence.watch_at) == (0, None)


def test_dpl_52_losses_behind_an_acknowledged_packet_are_usual_ones() -> None:
    evidence = Evidence()
    evidence.on_acked(1472, 100, 5.0)
    before = evidence.loss_rate.rate
    evidence.on_lost(1472, 10, 4.9, 5.1)
    assert (evidence.count, evidence.loss_rate.rate > before) == (0, True)


def test_a_larger_acknowledged_size_clears_a_smaller_one() -> None:
    evidence = Evidence()
    evidence.on_acked(1472, 1, 5.0)
    evidence.on_lost(1400, 3, 4.0, 5.1)
    assert evidence.count == 0


def test_a_smaller_acknowledged_size_does_not_clear_a_larger_one() -> None:
    evidence = Evidence()
    evidence.on_acked(1400, 1, 5.0)
    evidence.on_lost(1472, 3, 4.0, 5.1)
    assert (evidence.count, evidence.size, evidence.is_enough) == (3, 1472, True)


@given(steps=st.lists(st.tuples(st.integers(1200, 1210), st.floats(0, 100)), max_size=60))
def test_it_knows_when_the_newest_of_at_least_a_size_was_sent(steps: list[tuple[int, float]]) -> None:
    evidence = Evidence()
    for size, sent in steps:
        evidence.on_acked(size, 1, sent)
    for size in range(1200, 1212):
        expected = max((sent for each, sent in steps if each >= size), default=float("-inf"))
        assert evidence.newest_acked(size) == expected


def test_the_spread_of_what_was_lost_is_known() -> None:
    evidence = Evidence()
    evidence.on_lost(1400, 1, 3.0, 3.1)
    evidence.on_lost(1472, 1, 2.0, 3.2)
    assert (evidence.first_sent, evidence.last_sent, evidence.size, evidence.watch_at) == (2.0, 3.0, 1472, 3.1)


def test_dpl_43_after_a_false_alarm_more_is_needed_up_to_a_bound() -> None:
    evidence = Evidence()
    assert evidence.threshold == COUNT
    evidence.on_false_alarm()
    assert evidence.threshold == 2 * COUNT
    for _ in range(10):
        evidence.on_false_alarm()
    assert evidence.threshold == MAX_COUNT
    evidence.be_patient_no_more()
    assert evidence.threshold == COUNT


def test_losses_that_were_a_false_alarm_are_usual_ones() -> None:
    evidence = Evidence()
    before = evidence.loss_rate.rate
    evidence.on_lost(1472, 3, 1.0, 1.1)
    assert evidence.loss_rate.rate == before
    evidence.on_false_alarm()
    assert evidence.loss_rate.rate > before


def test_after_a_stall_what_was_sent_before_is_no_evidence() -> None:
    evidence = Evidence()
    evidence.on_lost(1472, 2, 1.0, 1.1)
    evidence.excuse(5.0)
    assert evidence.count == 0
    evidence.on_lost(1472, 9, 5.0, 5.1)
    assert evidence.count == 0
    evidence.on_lost(1472, 1, 5.1, 5.2)
    assert evidence.count == 1
