"""qtunnel.pmtud.sequential: one probe at a time (RFC 8899 §5.3, §8). Sizes in bytes of UDP payload."""

from __future__ import annotations

import pytest

from qtunnel.pmtud.config import MAX_PROBES
from qtunnel.pmtud.sequential import SequentialSearch


@pytest.mark.parametrize("top", [1472, 8972])
@pytest.mark.parametrize("limit", [1200, 1201, 1252, 1337, 1372, 1400, 1452, 1464, 1471, 1472])
def test_dpl_06_dpl_42_one_probe_at_a_time_finds_every_size_too(limit: int, top: int) -> None:
    search = SequentialSearch(1200, top, 4)
    probes = 0
    while not search.is_complete:
        flight = search.next_flight(100_000)
        assert len(flight) == 1
        probes += 1
        (search.on_acked if flight[0] <= limit else search.on_lost)(flight[0])
    assert search.low == limit
    assert probes <= 60


def test_dpl_23_dpl_36_a_lost_probe_is_repeated_until_it_has_failed_three_times() -> None:
    search = SequentialSearch(1200, 1472, 4)
    for _ in range(MAX_PROBES):
        assert search.next_flight(100_000) == [1472]
        search.on_lost(1472)
    assert search.next_flight(100_000) != [1472]


def test_dpl_59_a_suggested_size_is_next() -> None:
    search = SequentialSearch(1200, 1472, 4)
    search.suggest(1400)
    assert search.next_flight(100_000) == [1400]


def test_a_remembered_size_is_first() -> None:
    search = SequentialSearch(1200, 1472, 4)
    search.remember(1400)
    assert search.next_flight(100_000) == [1400]


def test_without_room_nothing_is_asked() -> None:
    search = SequentialSearch(1200, 1472, 4)
    assert (search.next_flight(1000), search.flights) == ([], 0)
