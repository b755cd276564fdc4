from qtunnel.drops import DropCounts, DropReason
from qtunnel.tunnel.stats import TrafficStats, drops_as_dict, merge_drops


def test_packets_and_bytes_are_counted_by_direction() -> None:
    stats = TrafficStats()
    stats.count_in([b"12345", b"1"])
    stats.count_out([b"123"])
    shown = stats.as_dict()
    assert (shown["packets_in"], shown["bytes_in"], shown["packets_out"], shown["bytes_out"]) == (2, 6, 1, 3)


def test_only_drops_that_happened_are_shown_under_their_public_names() -> None:
    drops = DropCounts({DropReason.TOO_BIG: 2, DropReason.NO_ROUTE: 0})
    assert drops_as_dict(drops) == {"too-big": 2}


def test_drop_counters_add_up() -> None:
    a, b = DropCounts({DropReason.TOO_BIG: 2}), DropCounts({DropReason.TOO_BIG: 1, DropReason.MALFORMED: 4})
    assert merge_drops([a, b]) == {DropReason.TOO_BIG: 3, DropReason.MALFORMED: 4}
    assert a == {DropReason.TOO_BIG: 2}
