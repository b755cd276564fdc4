"""qtunnel.recovery.congestion.bbr_model."""

from __future__ import annotations

from math import inf

import pytest

from qtunnel.recovery.congestion.base import AckSample
from qtunnel.recovery.congestion.bbr_model import BbrModel

SIZE = 1000


def rated(
    delivered: int,
    prior_delivered: int,
    interval: float,
    *,
    min_rtt: float = 0.1,
    now: float = 1.0,
    is_app_limited: bool = False,
    newly_acked: int = 1000,
) -> AckSample:
    """Return an ACK with a delivery rate sample."""
    return AckSample(
        now=now,
        newly_acked_bytes=newly_acked,
        rtt=min_rtt,
        min_rtt=min_rtt,
        has_rate=True,
        delivered=delivered,
        prior_delivered=prior_delivered,
        sample_delivered=delivered - prior_delivered,
        interval=interval,
        is_app_limited=is_app_limited,
    )


def test_the_rate_is_what_was_delivered_over_the_interval() -> None:
    model = BbrModel(SIZE)
    model.on_sample(rated(30_000, 10_000, 0.1))
    assert model.delivery_rate == pytest.approx(200_000)


def test_an_interval_below_min_rtt_gives_no_rate() -> None:
    model = BbrModel(SIZE)
    model.on_sample(rated(30_000, 10_000, 0.09))
    assert model.delivery_rate == 0
    model.on_sample(AckSample(now=1.0, newly_acked_bytes=1400, interval=5.0))
    assert model.delivery_rate == 0


def test_a_rounding_error_below_min_rtt_is_none() -> None:
    model = BbrModel(SIZE)
    model.on_sample(rated(30_000, 10_000, 0.1 - 1e-9))
    assert model.delivery_rate > 0


def test_a_low_rate_of_a_sender_that_limits_itself_is_not_taken() -> None:
    model = BbrModel(SIZE)
    for delivered, prior, is_app_limited in ((30_000, 10_000, False), (31_000, 30_000, True)):
        model.on_sample(rated(delivered, prior, 0.1, is_app_limited=is_app_limited))
        model.update_max_bw()
        model.advance_max_bw_filter()
    assert model.max_bw == pytest.approx(200_000)


def test_a_round_trip_ends_with_a_packet_sent_after_it_began() -> None:
    model = BbrModel(SIZE)
    starts = []
    for delivered, prior in ((1000, 0), (2000, 0), (3000, 500), (4000, 1000), (5000, 2000), (6000, 4000)):
        sample = rated(delivered, prior, 0.1)
        model.on_sample(sample)
        model.update_round(sample)
        starts.append(model.round_start)
    assert starts == [True, False, False, True, False, True]
    assert model.round_count == model.rounds_since_probe_up == 3


def test_a_sample_without_rate_ends_no_round_trip() -> None:
    model = BbrModel(SIZE)
    sample = AckSample(now=1.0, newly_acked_bytes=1400, delivered=10_000)
    model.on_sample(sample)
    model.update_round(sample)
    model.update_latest_delivery_signals(sample)
    assert not model.round_start
    assert not model.loss_round_start


def test_what_is_marked_limited_by_the_sender_is_so_until_it_is_delivered() -> None:
    model = BbrModel(SIZE)
    model.on_sample(rated(10_000, 0, 0.1))
    model.mark_app_limited(5000)
    for delivered, prior, expected in ((12_000, 9000, False), (14_000, 10_000, True), (20_000, 15_001, False)):
        model.on_sample(rated(delivered, prior, 0.1))
        assert model.is_app_limited is expected


def test_aggregation_is_what_comes_beyond_the_bandwidth() -> None:
    model = BbrModel(SIZE)
    model.bw = 100_000.0
    for step in range(50):
        # 10 ms worth every 10 ms, and once 50 ms worth at once.
        newly_acked = 5000 if step == 20 else 1000
        sample = rated(0, 0, 0.1, now=1.0 + step / 100, newly_acked=newly_acked)
        model.update_ack_aggregation(sample, 100_000, full_bw_reached=True)
    assert model.extra_acked == pytest.approx(5000, abs=1001)


def test_aggregation_is_no_more_than_the_window() -> None:
    model = BbrModel(SIZE)
    model.update_ack_aggregation(rated(0, 0, 0.1, newly_acked=50_000), 12_000, full_bw_reached=True)
    assert model.extra_acked == 12_000


def test_min_rtt_is_of_the_last_ten_seconds_and_expires_for_the_probe_after_five() -> None:
    model = BbrModel(SIZE)
    model.update_min_rtt(0.1, 100.0)
    assert (model.min_rtt, model.probe_rtt_expired) == (0.1, False)
    model.update_min_rtt(0.2, 104.9)
    assert not model.probe_rtt_expired
    model.update_min_rtt(0.2, 105.1)
    assert model.probe_rtt_expired
    assert model.probe_rtt_min_delay == 0.2
    assert model.min_rtt == 0.1
    model.update_min_rtt(0.3, 110.1)
    assert model.min_rtt == 0.2
    model.update_min_rtt(0.05, 110.2)
    assert model.min_rtt == 0.05


def test_losses_take_the_short_term_bounds_to_what_was_delivered_but_not_below_seven_tenths() -> None:
    model = BbrModel(SIZE)
    sample = rated(20_000, 0, 0.1)
    model.on_sample(sample)
    model.update_max_bw()
    model.is_loss_in_round = True
    model.bw_latest, model.inflight_latest = 50_000.0, 9000
    model.adapt_lower_bounds(12_000, is_probing_bw=True)
    assert model.bw_shortterm == inf
    model.adapt_lower_bounds(12_000, is_probing_bw=False)
    assert model.bw_shortterm == pytest.approx(0.7 * 200_000)
    assert model.inflight_shortterm == 9000
    model.bound_bw()
    assert model.bw == model.bw_shortterm
    model.reset_short_term_model()
    model.bound_bw()
    assert model.bw == model.max_bw == pytest.approx(200_000)


def test_the_maxima_of_a_round_trip_begin_anew_with_the_next() -> None:
    model = BbrModel(SIZE)
    for delivered, prior, interval, expected in (
        (30_000, 10_000, 0.1, 200_000),
        (31_000, 21_000, 0.1, 200_000),
        (45_000, 31_000, 0.1, 140_000),
    ):
        sample = rated(delivered, prior, interval)
        model.on_sample(sample)
        model.update_latest_delivery_signals(sample)
        model.advance_latest_delivery_signals(sample)
        assert model.bw_latest == pytest.approx(expected)
    model.reset_congestion_signals()
    assert (model.bw_latest, model.inflight_latest) == (0, 0)


def test_volumes_have_a_floor_and_room_for_bursts() -> None:
    model = BbrModel(SIZE)
    assert model.bdp_multiple(2.0, 1e6) == 10_000  # no RTT yet: an initial window
    model.min_rtt = 0.1
    assert model.bdp_multiple(2.0, 1e6) == 200_000
    assert model.quantization_budget(10, is_probing_up=False) == 4 * SIZE
    assert model.quantization_budget(50_000, is_probing_up=True) == 52_000
    model.set_send_quantum(30e6)
    assert model.quantization_budget(10, is_probing_up=False) == 30_000


def test_headroom_is_fifteen_percent_and_a_datagram_at_least() -> None:
    model = BbrModel(SIZE)
    assert model.inflight_with_headroom() == inf
    model.set_inflight_longterm(100_000)
    assert model.inflight_with_headroom() == 85_000
    model.set_inflight_longterm(6000)
    assert model.inflight_with_headroom() == 5000
    model.set_inflight_longterm(2000)
    assert model.inflight_with_headroom() == 4000


def test_scaling_leaves_what_is_unknown_unknown() -> None:
    model = BbrModel(SIZE)
    model.scale(0.5)
    assert model.inflight_longterm == model.inflight_shortterm == inf
    model.set_inflight_longterm(1001)
    model.inflight_shortterm = 500
    model.scale(0.5)
    assert (model.inflight_longterm, model.inflight_shortterm) == (500, 250)
