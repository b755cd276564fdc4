"""Datagrams before their stream: kept in order, few, and not for long."""

from __future__ import annotations

from qtunnel.drops import DropCounts, DropReason
from qtunnel.quic.early_datagrams import MAX_EARLY, EarlyDatagrams


def test_payloads_are_taken_by_stream_in_order() -> None:
    early = EarlyDatagrams(DropCounts())
    early.keep(0, b"a", until=1.0)
    early.keep(4, b"b", until=1.0)
    early.keep(0, b"c", until=1.0)
    assert early.has(0)
    assert early.take(0) == [b"a", b"c"]
    assert not early.has(0)
    assert early.take(4) == [b"b"]
    assert early.take(4) == []


def test_the_number_is_bounded_and_what_is_over_is_counted() -> None:
    drops = DropCounts()
    early = EarlyDatagrams(drops)
    for _ in range(MAX_EARLY + 5):
        early.keep(0, b"x", until=1.0)
    assert len(early) == MAX_EARLY
    assert drops == {DropReason.UNKNOWN_STREAM: 5}


def test_late_ones_are_dropped_by_the_timer() -> None:
    drops = DropCounts()
    early = EarlyDatagrams(drops)
    assert early.get_timer() is None
    early.keep(0, b"x", until=1.0)
    early.keep(4, b"y", until=2.0)
    assert early.get_timer() == 1.0
    early.drop_late(1.0)
    assert early.get_timer() == 2.0
    assert drops == {DropReason.UNKNOWN_STREAM: 1}


def test_those_of_an_ended_stream_are_counted_as_such() -> None:
    drops = DropCounts()
    early = EarlyDatagrams(drops)
    early.keep(0, b"x", until=1.0)
    early.forget(0)
    early.forget(0)
    assert drops == {DropReason.STREAM_CLOSED: 1}
