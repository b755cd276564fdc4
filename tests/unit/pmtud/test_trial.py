"""qtunnel.pmtud.trial. Times in seconds."""

from __future__ import annotations

from qtunnel.pmtud.trial import PATIENCE, Pair, Trial

RTT = 0.1


def a_trial(needed: int = 3) -> Trial:
    return Trial(size=1472, since=10.0, needed=needed, acquitted_after=10.0, first_pair=10.0, reason="losses")


def answer(pair: Pair, at: float) -> None:
    pair.probe_lost = True
    pair.companion_acked = at


def test_dpl_52_pairs_answered_apart_convict() -> None:
    trial = a_trial()
    for number in range(3):
        assert not trial.is_convicted(RTT)
        answer(trial.start_pair(10.0 + number * RTT, RTT, RTT), 10.1 + number * RTT)
    assert trial.is_convicted(RTT)


def test_dpl_52_pairs_answered_at_one_moment_are_one_event() -> None:
    trial = a_trial()
    for number in range(6):
        answer(trial.start_pair(10.0 + number * RTT, RTT, RTT), 11.0 + number * 0.01)
    assert (trial.count(RTT), trial.is_convicted(RTT)) == (2, False)


def test_dpl_52_where_many_are_needed_an_event_counts_as_two_at_most() -> None:
    trial = a_trial(6)
    for number in range(8):
        answer(trial.start_pair(10.0 + number * RTT, RTT, RTT), 11.0 + number // 4)
    assert trial.count(RTT) == 4


def test_a_pair_whose_small_packet_was_lost_too_says_nothing() -> None:
    trial = a_trial(1)
    pair = trial.start_pair(10.0, RTT, RTT)
    pair.probe_lost = pair.is_void = True
    assert not trial.is_convicted(RTT)


def test_a_pair_whose_large_packet_is_not_known_to_be_lost_says_nothing() -> None:
    trial = a_trial(1)
    pair = trial.start_pair(10.0, RTT, RTT)
    pair.companion_acked = 10.1
    assert not trial.is_convicted(RTT)
    pair.probe_lost = True
    assert trial.is_convicted(RTT)


def test_pairs_go_a_round_trip_apart_and_closer_when_many_are_needed() -> None:
    trial = a_trial(3)
    trial.start_pair(10.0, RTT, RTT)
    assert trial.next_pair == 10.0 + RTT
    trial = a_trial(9)
    trial.start_pair(10.0, RTT, RTT)
    assert round(trial.next_pair - 10.0, 6) == round(RTT * 5 / 9, 6)


def test_where_round_trips_are_longer_than_the_shortest_no_more_pairs_are_under_way_than_needed() -> None:
    trial = a_trial(5)
    trial.start_pair(10.0, RTT, 12 * RTT)
    assert round(trial.next_pair - 10.0, 6) == round(2 * RTT, 6)


def test_when_nothing_is_answered_pairs_go_out_ever_slower() -> None:
    trial = a_trial()
    now = 10.0
    gaps = []
    for _ in range(PATIENCE + 14):
        trial.start_pair(now, RTT, RTT)
        gaps.append(trial.next_pair - now)
        now = trial.next_pair
    assert round(gaps[PATIENCE - 1], 6) == RTT
    assert round(gaps[PATIENCE], 6) == 2 * RTT
    assert round(gaps[-1], 6) == 1024 * RTT
    sent = trial.pairs[-1].sent
    trial.on_companion_acked(trial.pairs[-1], sent + RTT / 2)
    assert round(trial.next_pair, 6) == round(sent + RTT, 6)
    trial.start_pair(now, RTT, RTT)
    assert round(trial.next_pair - now, 6) == RTT


def test_a_small_packet_of_another_trial_is_nothing_to_it() -> None:
    trial = a_trial(1)
    pair = Pair(9.0)
    pair.probe_lost = True
    trial.on_companion_acked(pair, 10.0)
    trial.start_pair(10.0, RTT, RTT)
    trial.on_companion_acked(pair, 10.1)
    assert (trial.count(RTT), trial.next_pair) == (0, 10.0 + RTT)


def test_after_a_stall_it_begins_anew() -> None:
    trial = a_trial(1)
    pair = trial.start_pair(10.0, RTT, RTT)
    trial.excuse(11.0, RTT)
    answer(pair, 11.0)
    assert (trial.is_convicted(RTT), trial.since, trial.next_pair) == (False, 11.0, 11.0 + RTT)
