"""netlab.pmtu: some of the simulated connections of `lab run pmtu-card`; the seeds are the lab's own."""

import pytest

from netlab.pmtu.card import Card, share_of
from netlab.pmtu.conditions import Conditions, draw
from netlab.pmtu.connection import Connection
from netlab.pmtu.runs import in_parallel, quiet, search, shrink
from qtunnel.pmtud.config import PathMtuConfig


def test_dpl_52_paths_that_lose_packets_and_stay_as_they_are_are_never_convicted():
    runs = [quiet(seed) for seed in range(15)]
    assert [run.seed for run in runs if run.false_alarms] == []
    assert sum(run.suspicions for run in runs) > 5  # else nothing was asked


def test_dpl_50_paths_that_become_narrower_are_found_within_8_rtt_and_2_pto():
    runs = [shrink(seed) for seed in range(30)]
    tested = [run for run in runs if run.is_tested]
    assert len(tested) > 25
    assert [run.seed for run in tested if run.within is None or run.within > 1] == []
    assert [run.seed for run in tested if run.is_too_large or run.false_alarms] == []


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
@pytest.mark.parametrize("ack_every", [2, 4, 10])
@pytest.mark.parametrize("loss", [0.005, 0.02, 0.13, 0.15])
def test_dpl_52_neither_steady_losses_nor_rare_acks_convict(loss, ack_every, congestion):
    conditions = Conditions(seed=3, congestion=congestion, loss=loss, ack_every=ack_every, duration=4.0)
    outcome = Connection(conditions).run()
    assert outcome.convictions == []
    assert outcome.size == 1472


def test_who_counts_losses_convicts_paths_that_have_not_changed():
    drawn = [draw(seed, shrinks=False) for seed in range(12)]
    config = PathMtuConfig(black_hole="loss_count")
    assert sum(len(Connection(conditions, config).run().convictions) for conditions in drawn) > 0
    assert sum(len(Connection(conditions).run().convictions) for conditions in drawn) == 0


def test_a_narrower_path_is_never_found_where_nobody_looks():
    conditions = draw(1, shrinks=True)
    outcome = Connection(conditions, PathMtuConfig(black_hole="off")).run()
    assert outcome.first_lost is not None
    assert outcome.convictions == []


@pytest.mark.parametrize("link_mtu", [1228, 1280, 1381, 1420, 1499, 1500])
def test_dpl_42_a_search_without_loss_takes_four_and_a_half_round_trips_at_most(link_mtu):
    run = search(1, 0.0, link_mtu)
    assert (run.off_by, run.round_trips <= 4.5, run.usable <= 2, run.probe_bytes <= 30_000) == (
        0,
        True,
        True,
        True,
    )


def test_dpl_42_searches_on_a_path_that_loses_packets():
    runs = [search(seed, 0.02) for seed in range(60)]
    assert [run.seed for run in runs if run.off_by != 0] == []
    assert share_of((run.round_trips for run in runs), 0.95) <= 6.5


@pytest.mark.parametrize("link_mtu", [1500, 4352, 8999, 9000])
def test_dpl_42_jumbo_frames_are_found_too(link_mtu):
    assert search(1, 0.0, link_mtu, largest=9000).off_by == 0


def test_the_same_seed_gives_the_same_run():
    assert quiet(7) == quiet(7)
    assert shrink(7) == shrink(7)


def test_the_card_counts_and_bounds():
    card = Card()
    card.quiet += in_parallel(quiet, range(4))
    card.shrinks += in_parallel(shrink, range(4))
    card.searches[0.02] = [search(seed, 0.02) for seed in range(3)]
    page = "\n".join(card.lines())
    assert "Paths that stayed: 4 runs of" in page
    assert "false alarms 0 in 0.0 connection-hours" in page
    assert "52.7129% of runs" in page  # 1 - 0.05 ** (1 / 4)
    assert f"Paths that became narrower: {len(card.tested)}" in page
    assert "Searches at 2% loss: 3, wrong or no end 0 (0.00%)" in page
