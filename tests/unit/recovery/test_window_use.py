"""qtunnel.recovery.window_use."""

from __future__ import annotations

from math import inf

from qtunnel.recovery.window_use import WindowUse

AVOIDANCE = 0.0


def test_a_full_window_counts_in_its_round_trip_and_the_next() -> None:
    use = WindowUse()
    use.on_acked(0, 10)
    assert not use.is_cwnd_limited(12000, AVOIDANCE)
    use.is_full = True
    for acked, sent, expected in ((10, 20, True), (11, 20, True), (20, 30, True), (21, 30, False)):
        use.on_acked(acked, sent)
        assert use.is_cwnd_limited(12000, AVOIDANCE) is expected


def test_in_slow_start_half_a_window_is_enough() -> None:
    use = WindowUse()
    use.on_acked(0, 10)
    use.most_in_flight = 6001
    assert use.is_cwnd_limited(12000, inf)
    assert not use.is_cwnd_limited(12000, AVOIDANCE)
    assert not use.is_cwnd_limited(12002, inf)
    use.on_acked(11, 20)
    assert use.is_cwnd_limited(12000, inf)
    use.on_acked(21, 30)
    assert not use.is_cwnd_limited(12000, inf)
