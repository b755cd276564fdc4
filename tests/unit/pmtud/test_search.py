"""qtunnel.pmtud.search: exact, in few flights, whatever single probes are lost. Sizes in bytes of UDP payload."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtunnel.pmtud.config import MAX_PROBES
from qtunnel.pmtud.search import FLIGHT_BYTES, ParallelSearch
from qtunnel.pmtud.sizes import udp_payload


def search_to_end(
    search: ParallelSearch, limit: int, loses: Callable[[int], bool] = lambda _: False
) -> tuple[int, int, int]:
    """Return the flights taken until low was exact, until the end, and the bytes sent."""
    exact = total = 0
    while not search.is_complete:
        flight = search.next_flight(10**9)
        assert flight
        total += sum(flight)
        for size in flight:
            if size <= limit and not loses(size):
                search.on_acked(size)
            else:
                search.on_lost(size)
        if search.low == limit and not exact:
            exact = search.flights
        assert search.flights < 100
    return exact, search.flights, total


@pytest.mark.parametrize(("version", "smallest", "base"), [(4, 1228, 1200), (6, 1280, 1232)])
def test_dpl_42_every_link_mtu_of_an_ethernet_is_found_to_the_byte_in_few_flights(
    version: int, smallest: int, base: int
) -> None:
    ends = []
    for mtu in range(smallest, 1501):
        limit = udp_payload(mtu, version)
        search = ParallelSearch(base, udp_payload(1500, version), version)
        exact, flights, total = search_to_end(search, limit)
        assert search.low == limit, mtu
        assert (exact <= 4, flights <= 5, total <= 30_000) == (True, True, True), mtu
        ends.append(flights)
    assert sorted(ends)[len(ends) // 2] <= 4


@pytest.mark.parametrize(("version", "base"), [(4, 1200), (6, 1232)])
def test_dpl_42_every_link_mtu_up_to_9000_is_exact_within_six_flights(version: int, base: int) -> None:
    for mtu in range(1280, 9001, 7):
        limit = udp_payload(mtu, version)
        search = ParallelSearch(base, udp_payload(9000, version), version)
        exact, flights, _ = search_to_end(search, limit)
        assert search.low == limit, mtu
        assert (exact <= 6, flights <= 7) == (True, True), mtu


@settings(deadline=None)
@given(limit=st.integers(1200, 8972), top=st.integers(1200, 8972), pattern=st.lists(st.booleans(), max_size=40))
def test_dpl_23_dpl_42_single_losses_never_make_it_wrong(limit: int, top: int, pattern: list[bool]) -> None:
    limit = min(limit, top)
    search = ParallelSearch(1200, top, 4)
    in_a_row: dict[int, int] = {}
    verdicts = iter(pattern)

    def loses(size: int) -> bool:
        # Any losses, but never three of one size.
        lost = next(verdicts, False) and in_a_row.get(size, 0) < MAX_PROBES - 1
        in_a_row[size] = in_a_row.get(size, 0) + 1 if lost else 0
        return lost

    search_to_end(search, limit, loses)
    assert search.low == limit


def test_dpl_23_dpl_27_a_size_that_arrives_at_the_third_attempt_is_good() -> None:
    search = ParallelSearch(1400, 1401, 4)
    search.on_lost(1401)
    search.on_lost(1401)
    assert not search.is_complete
    search.on_acked(1401)
    assert (search.low, search.strikes(1401), search.is_complete) == (1401, 0, True)


def test_dpl_23_dpl_37_three_losses_of_the_next_byte_are_the_end() -> None:
    search = ParallelSearch(1400, 1472, 4)
    for _ in range(MAX_PROBES):
        assert not search.is_complete
        search.on_lost(1401)
    assert (search.low, search.is_complete, search.next_flight(10**6)) == (1400, True, [])


def test_a_size_that_arrives_proves_all_smaller_ones() -> None:
    search = ParallelSearch(1200, 1472, 4)
    search.on_lost(1300)
    search.on_acked(1400)
    assert (search.low, search.high) == (1400, 1473)
    assert search.on_acked(1350) is False


@given(window=st.integers(0, 50_000))
def test_a_flight_fits_the_window_and_its_own_bound(window: int) -> None:
    flight = ParallelSearch(1200, 1472, 4).next_flight(window)
    assert sum(flight) <= min(window, FLIGHT_BYTES)
    assert flight == sorted(flight, reverse=True)


@pytest.mark.parametrize(("window", "count"), [(100_000, 5), (24_000, 4), (12_000, 2), (9_000, 1)])
def test_with_little_room_the_gap_is_divided_into_fewer_equal_parts(window: int, count: int) -> None:
    search = ParallelSearch(1472, 8972, 4, is_fresh=False)
    search.on_lost(8972)
    flight = search.next_flight(window)
    edges = [8972, *flight, 1472]
    parts = [larger - smaller for larger, smaller in pairwise(edges)]
    assert (len(flight), max(parts) - min(parts) <= 1) == (count, True)


def test_a_flight_for_which_there_is_no_room_is_not_counted() -> None:
    search = ParallelSearch(1200, 1472, 4)
    assert (search.next_flight(100), search.flights) == ([], 0)
    assert len(search.next_flight(100_000)) == 8


def test_a_remembered_size_is_asked_for_alone_and_is_the_end_if_it_arrives() -> None:
    search = ParallelSearch(1200, 1472, 4)
    search.remember(1400)
    assert search.next_flight(10**6) == [1400]
    search.on_acked(1400)
    assert search.is_complete


def test_a_remembered_size_that_is_lost_is_followed_by_the_usual_search() -> None:
    search = ParallelSearch(1200, 1472, 4)
    search.remember(1464)
    exact, flights, _ = search_to_end(search, 1372)
    assert (search.low, flights <= 6, exact > 0) == (1372, True, True)


def test_a_second_look_asks_for_the_next_byte_and_for_the_largest_size() -> None:
    search = ParallelSearch(1200, 1472, 4)
    search_to_end(search, 1400)
    search.look_again()
    assert search.next_flight(10**6) == [1472, 1401]


def test_a_suggested_size_is_asked_for_first_when_there_is_room_for_one_only() -> None:
    search = ParallelSearch(1200, 1472, 4)
    search.suggest(1333)
    assert search.next_flight(1400) == [1333]


@pytest.mark.parametrize("window", [2_000, 14_720, 23_188])
def test_a_largest_size_beyond_the_window_does_not_end_the_search_below_it(window: int) -> None:
    """A loopback interface has 65,536 bytes; the window grows with what arrives."""
    search = ParallelSearch(1200, 65_508, 4)
    while search.low < 60_000:
        flight = search.next_flight(window)
        assert flight, (search.low, window)
        assert sum(flight) <= window
        for size in flight:
            search.on_acked(size)
        window += sum(flight)
    assert search.flights < 15


def test_where_a_size_was_lost_beyond_the_window_smaller_ones_are_asked_for() -> None:
    search = ParallelSearch(1472, 65_508, 4, is_fresh=False)
    search.on_lost(60_000)
    flight = search.next_flight(14_720)
    assert flight
    assert 1472 < min(flight) <= max(flight) <= 14_720
