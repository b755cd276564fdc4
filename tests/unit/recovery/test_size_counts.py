"""qtunnel.recovery.size_counts."""

from __future__ import annotations

from qtunnel.recovery.size_counts import MAX_CLASSES, SizeCounts


def test_everything_small_is_one_class() -> None:
    counts = SizeCounts()
    counts[60].sent += 1
    counts[1200].sent += 1
    counts[1201].sent += 1
    assert {size: each.sent for size, each in counts.items()} == {1200: 2, 1201: 1}


def test_there_is_a_bound_and_the_busiest_classes_stay() -> None:
    counts = SizeCounts()
    counts[1400].sent = 1000
    for size in range(2000, 2000 + 3 * MAX_CLASSES):
        counts[size].sent += 1
        assert len(counts) <= MAX_CLASSES
    assert counts[1400].sent == 1000


def test_a_count_says_what_it_is() -> None:
    assert repr(SizeCounts()[1400]) == "<SizeCount sent 0, acked 0, lost 0>"
