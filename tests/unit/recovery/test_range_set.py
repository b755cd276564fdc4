"""tests.unit.recovery.range_set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.recovery.range_set import RangeSet

small = st.integers(0, 60)
operations = st.lists(st.tuples(st.sampled_from(["add", "subtract", "drop below", "cap"]), small, small))


def apply(changes: list[tuple[str, int, int]]) -> tuple[RangeSet, set[int]]:
    """Return the same changes made to a RangeSet and to a set."""
    ranges, numbers = RangeSet(), set[int]()
    for what, one, other in changes:
        start, stop = min(one, other), max(one, other)
        if what == "add":
            ranges.add(start, stop)
            numbers |= set(range(start, stop))
        elif what == "subtract":
            ranges.subtract(start, stop)
            numbers -= set(range(start, stop))
        elif what == "drop below":
            ranges.drop_below(start)
            numbers = {each for each in numbers if each >= start}
        else:
            forgotten_below = ranges.cap(start % 5)
            if forgotten_below is not None:
                numbers = {each for each in numbers if each >= forgotten_below}
            assert len(ranges) <= start % 5
    return ranges, numbers


def rows(numbers: set[int]) -> list[tuple[int, int]]:
    """Return the rows of successive numbers in a set as (start, stop)."""
    starts = sorted(each for each in numbers if each - 1 not in numbers)
    stops = sorted(each + 1 for each in numbers if each + 1 not in numbers)
    return list(zip(starts, stops, strict=True))


@given(operations)
def test_a_range_set_holds_what_a_set_holds(changes: list[tuple[str, int, int]]) -> None:
    ranges, numbers = apply(changes)
    assert list(ranges) == rows(numbers)
    assert len(ranges) == len(rows(numbers))
    assert ranges.count() == len(numbers)
    assert bool(ranges) == bool(numbers)
    assert ranges == RangeSet(rows(numbers))


@given(operations, small, small)
def test_questions_are_answered_as_by_a_set(changes: list[tuple[str, int, int]], one: int, other: int) -> None:
    ranges, numbers = apply(changes)
    start, stop = min(one, other), max(one, other)
    assert ranges.covers(start, stop) == (set(range(start, stop)) <= numbers)
    assert ranges.overlaps(start, stop) == bool(set(range(start, stop)) & numbers)
    assert ranges.contains(start) == (start in ranges) == (start in numbers)


@given(operations)
def test_lowest_and_highest_are_those_of_a_set(changes: list[tuple[str, int, int]]) -> None:
    ranges, numbers = apply(changes)
    if numbers:
        assert (ranges.lowest, ranges.highest) == (min(numbers), max(numbers))
    else:
        with pytest.raises(IndexError):
            _ = ranges.lowest
        with pytest.raises(IndexError):
            _ = ranges.highest


@given(operations, st.none() | st.integers(1, 6))
def test_newest_first_is_what_an_ack_frame_has(changes: list[tuple[str, int, int]], most: int | None) -> None:
    ranges, numbers = apply(changes)
    expected = [(start, stop - 1) for start, stop in reversed(rows(numbers))]
    assert ranges.newest_first(most) == expected[:most]


def test_ranges_that_touch_become_one() -> None:
    ranges = RangeSet([(0, 3), (5, 8)])
    ranges.add(3, 5)
    assert list(ranges) == [(0, 8)]


def test_cap_says_below_which_number_nothing_is_known() -> None:
    ranges = RangeSet([(0, 3), (5, 8), (10, 11)])
    assert ranges.cap(2) == 3
    assert list(ranges) == [(5, 8), (10, 11)]
    assert ranges.cap(2) is None


def test_a_range_set_is_no_other_thing_and_has_a_repr() -> None:
    assert RangeSet([(1, 2)]) != [(1, 2)]
    assert repr(RangeSet([(1, 2)])) == "RangeSet([(1, 2)])"
