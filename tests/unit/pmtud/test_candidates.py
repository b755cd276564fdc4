"""qtunnel.pmtud.candidates. Sizes in bytes of UDP payload."""

from __future__ import annotations

from itertools import pairwise

import pytest

from qtunnel.pmtud.candidates import FIRST_LINK_MTUS, LIKELY_LINK_MTUS, first_flight, likely_below, split
from qtunnel.pmtud.search import FLIGHT_BYTES
from qtunnel.pmtud.sizes import udp_payload


def test_the_first_sizes_are_likely_ones() -> None:
    assert set(FIRST_LINK_MTUS) <= set(LIKELY_LINK_MTUS)


@pytest.mark.parametrize("version", [4, 6])
def test_the_first_flight_fits_its_bound_and_begins_with_the_interface(version: int) -> None:
    top = udp_payload(1500, version)
    flight = first_flight(1200, top, version)
    assert (flight[0], len(flight)) == (top, 8)
    assert sum(flight) <= FLIGHT_BYTES
    assert flight == sorted(flight, reverse=True)


def test_the_first_flight_asks_for_nothing_known_or_forbidden() -> None:
    assert all(1300 < size <= 1400 for size in first_flight(1300, 1400, 4))


def test_likely_sizes_below_one_end_with_the_base() -> None:
    assert likely_below(1400, 1200, 4) == [1392, 1372, 1352, 1332, 1312, 1252, 1200]
    assert likely_below(1200, 1200, 4) == []


@pytest.mark.parametrize(("low", "high"), [(1200, 1472), (1400, 1405), (1400, 1402)])
def test_a_split_is_strictly_between_and_in_equal_parts(low: int, high: int) -> None:
    points = split(low, high, 6)
    assert all(low < point < high for point in points)
    edges = [high, *points, low]
    assert max(a - b for a, b in pairwise(edges)) <= -(-(high - low) // 6)
