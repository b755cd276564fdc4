"""qtunnel.recovery.window_use."""

from __future__ import annotations

from qtunnel.recovery.window_use import WindowUse


def test_a_full_window_counts_in_its_round_trip_and_the_next() -> None:
    use = WindowUse()
    use.on_acked(0, 10)
    assert not use.is_cwnd_limited
    use.is_full_in_round = True
    assert use.is_cwnd_limited
    use.on_acked(10, 20)
    assert use.is_cwnd_limited
    use.on_acked(11, 20)
    assert use.is_cwnd_limited
    use.on_acked(20, 30)
    assert use.is_cwnd_limited
    use.on_acked(21, 30)
    assert not use.is_cwnd_limited
