"""qtunnel.recovery.sent_packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.recovery.sent_packets import SentPackets, numbers
from tests.unit.recovery.runs import run, sent, taken


def outstanding(packets: SentPackets) -> set[int]:
    return {number for each in packets.runs() for number in numbers(each, each.outstanding)}


@given(
    counts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 7)), min_size=1, max_size=12),
    takes=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 20)), max_size=12),
)
def test_taking_ranges_leaves_what_a_set_would_have_left(
    counts: list[tuple[int, int]], takes: list[tuple[int, int]]
) -> None:
    packets, model, first = SentPackets(), set[int](), 0
    for gap, count in counts:
        first += gap
        packets.append(run(first, count))
        model |= set(range(first, first + count))
        first += count
    for low, length in takes:
        wanted = model & set(range(low, low + length + 1))
        assert taken(packets.take(low, low + length)) == sorted(wanted)
        model -= wanted
        assert outstanding(packets) == model
        assert all(each.outstanding for each in packets.runs())
        assert packets.first_number() == (packets.runs()[0].first if model else None)


def test_a_whole_run_is_taken_in_one_step() -> None:
    packets = sent(run(0, 4), run(4, 4))
    assert [(each.first, mask) for each, mask in packets.take(0, 5)] == [(0, 0b1111), (4, 0b0011)]
    assert len(packets) == 1


def test_runs_after_a_gap_know_it() -> None:
    packets = sent(run(0), run(1), run(2), run(3))
    packets.take(1, 2)
    assert [each.follows_gap for each in packets.runs()] == [False, True]


def test_thousands_of_runs_taken_from_the_front_are_not_kept() -> None:
    packets = SentPackets()
    for number in range(5000):
        packets.append(run(number))
        if number >= 10:
            packets.take(number - 10, number - 10)
    assert len(packets) == 10
    assert len(packets._runs) < 1100
    assert packets.first_number() == 4990


def test_runs_through_are_those_that_begin_at_or_before_a_number() -> None:
    packets = sent(run(10, 2), run(12, 2), run(14, 2))
    assert [each.first for each in packets.runs_through(12)] == [10, 12]
    assert packets.runs_through(9) == []


def test_whether_any_is_outstanding_up_to_a_number_is_told_to_the_bit() -> None:
    packets = sent(run(10, 4))
    packets.take(10, 11)
    assert [packets.has_any_through(each) for each in (9, 10, 11, 12)] == [False, False, False, True]


def test_insert_keeps_the_order_and_joins_equal_runs() -> None:
    packets = SentPackets()
    for first, bits in ((8, 0b01), (4, 0b11), (8, 0b10), (6, 0b01)):
        each = run(first, 2)
        each.outstanding = bits
        packets.insert(each)
    assert [(each.first, each.outstanding) for each in packets.runs()] == [(4, 3), (6, 1), (8, 3)]


def test_take_where_takes_every_run_a_predicate_is_true_of() -> None:
    packets = sent(run(0, size=1400), run(1, size=60), run(2, size=1400))
    assert [each.first for each in packets.take_where(lambda each: each.size > 1200)] == [0, 2]
    assert outstanding(packets) == {1}
    assert packets.take_where(lambda each: each.size > 1200) == []


def test_take_oldest_takes_the_oldest() -> None:
    packets = sent(run(3), run(7))
    assert packets.take_oldest().first == 3
    assert packets.first_number() == 7
    packets.take_oldest()
    with pytest.raises(IndexError):
        packets.take_oldest()


def test_remove_empty_looks_only_at_the_oldest() -> None:
    packets = sent(run(0), run(1), run(2), run(3))
    for index in (1, 3):
        packets.runs()[index].outstanding = 0
    packets.remove_empty(3)
    assert [each.first for each in packets.runs()] == [0, 2, 3]


def test_a_run_says_what_it_is() -> None:
    assert repr(run(7, 2)) == "<SentRun 7+2 of 1200, outstanding 11>"
