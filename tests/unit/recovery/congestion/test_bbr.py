"""qtunnel.recovery.congestion.bbr: details. The draft's test cases are in tests/conformance/test_bbr.py."""

from __future__ import annotations

from math import inf

import pytest

from qtunnel.recovery.congestion.base import LostRun
from qtunnel.recovery.congestion.bbr import Bbr
from qtunnel.recovery.congestion.bbr_state import State
from tests.unit.recovery.bottleneck import Bottleneck, Path, mbit
from tests.unit.recovery.congestion.samples import loss

SIZE = 1200


def cruising() -> Bbr:
    """Return a controller that has filled a path of 10 Mbit/s and 40 ms and cruises."""
    bottleneck = Bottleneck("bbr", Path(rate=mbit(10), queue=50_000))
    bottleneck.run_until(lambda: control(bottleneck).state is State.PROBE_BW_CRUISE, 5.0)
    return control(bottleneck)


def control(bottleneck: Bottleneck) -> Bbr:
    assert isinstance(bottleneck.control, Bbr)
    return bottleneck.control


def test_flows_with_other_seeds_probe_at_other_times() -> None:
    waits = set()
    for seed in range(20):
        each = Bbr(SIZE, seed=seed * 0x9E3779B9)
        each._pick_probe_wait()
        assert 2.0 <= each.bw_probe_wait < 3.0
        assert each.model.rounds_since_probe_up in (0, 1)
        waits.add(each.bw_probe_wait)
    assert len(waits) == 20


def test_the_losses_of_a_burst_are_placed_where_they_crossed_the_threshold() -> None:
    each = cruising()
    each.is_bw_probe_sample = True
    each._enter(State.PROBE_BW_UP)
    target = each._target_inflight()
    run = LostRun(
        size=10 * SIZE, sent_size=40 * SIZE, tx_in_flight=200_000, lost_since_sent=10 * SIZE, is_app_limited=False
    )
    each.on_loss(loss(2000.0, 10 * SIZE, runs=[run]))
    prefix = (0.02 * (200_000 - 40 * SIZE)) / 0.98
    assert each.model.inflight_longterm == int(max(200_000 - 40 * SIZE + prefix, 0.7 * target))
    assert each.state is State.PROBE_BW_DOWN
    assert each.prev_probe_too_high


def test_losses_below_the_threshold_are_borne() -> None:
    each = cruising()
    each.is_bw_probe_sample = True
    before = each.model.inflight_longterm
    run = LostRun(size=SIZE, sent_size=SIZE, tx_in_flight=200_000, lost_since_sent=3 * SIZE, is_app_limited=False)
    each.on_loss(loss(2000.0, SIZE, runs=[run]))
    assert each.model.inflight_longterm == before
    assert each.is_bw_probe_sample


def test_a_smaller_datagram_size_scales_volumes_and_not_the_bandwidth() -> None:
    each = cruising()
    each.model.set_inflight_longterm(100_000)
    window, bandwidth = each.congestion_window, each.model.max_bw
    each.set_max_datagram_size(700)
    assert each.congestion_window == int(window / 2)
    assert each.model.inflight_longterm == 50_000
    assert each.model.max_bw == bandwidth
    each.set_max_datagram_size(1400)
    assert each.congestion_window == int(window / 2)


def test_a_larger_datagram_size_raises_only_the_minimum() -> None:
    each = Bbr(SIZE)
    each.set_max_datagram_size(9000)
    assert each.congestion_window == 18_000


def test_persistent_congestion_leaves_the_minimum_and_the_model_leads_back() -> None:
    each = cruising()
    window = each.congestion_window
    each.on_persistent_congestion(2000.0)
    assert each.congestion_window == 2 * 1400
    assert each.prior_cwnd >= window
    each.on_spurious_loss(2000.1)
    assert each.congestion_window >= window


def test_a_restart_before_anything_was_delivered_is_the_start() -> None:
    each = Bbr(SIZE)
    rate = each.pacing_rate
    each.on_idle_restart(1.0)
    assert not each.idle_restart
    assert each.pacing_rate == rate


def test_during_startup_the_pacing_rate_is_only_raised() -> None:
    bottleneck = Bottleneck("bbr", Path(rate=mbit(10), queue=50_000), app_rate=mbit(0.1))
    bottleneck.run(0.5)
    each = control(bottleneck)
    rate = each.pacing_rate
    assert rate is not None
    bottleneck.run(3.0)
    assert each.state is State.STARTUP
    assert each.pacing_rate is not None
    assert each.pacing_rate >= rate > 10 * mbit(0.1)


def test_a_spurious_loss_during_probe_rtt_leaves_probe_rtt_alone() -> None:
    each = cruising()
    each._enter(State.PROBE_RTT)
    each.undo_state = State.STARTUP
    each.on_spurious_loss(2000.0)
    assert each.state is State.PROBE_RTT
    assert not each.full_bw_reached


def test_the_model_bounds_nothing_before_there_were_losses() -> None:
    each = Bbr(SIZE)
    assert each.model.inflight_longterm == each.model.bw_shortterm == inf
    assert each._volume_cap() == inf


@pytest.mark.parametrize("state", list(State))
def test_the_volume_cap_is_that_of_the_state(state: State) -> None:
    each = Bbr(SIZE)
    each.model.set_inflight_longterm(100_000)
    each._enter(state)
    expected = {
        State.STARTUP: inf,
        State.DRAIN: inf,
        State.PROBE_BW_CRUISE: 85_000,
        State.PROBE_RTT: 85_000,
    }
    assert each._volume_cap() == expected.get(state, 100_000)
