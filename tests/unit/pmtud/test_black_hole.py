"""qtunnel.pmtud.black_hole. Sizes in bytes of UDP payload, times in seconds."""

from __future__ import annotations

from qtunnel.pmtud.black_hole import CALM, HINT_PAUSE, BlackHoleDetector
from qtunnel.pmtud.evidence import COUNT
from qtunnel.pmtud.probes import SMALL_SIZE, ProbePacket, Purpose
from qtunnel.pmtud.round_trips import RoundTrips
from qtunnel.pmtud.sent_probes import SentProbe, SentProbes

RTT = 0.1
WINDOW = 100_000


def a_detector(latest: float = RTT) -> BlackHoleDetector:
    trips = RoundTrips()
    trips.update(latest, latest, RTT, 0.3)
    return BlackHoleDetector(1200, 4, trips, SentProbes())


def suspected(latest: float = RTT, now: float = 10.0) -> BlackHoleDetector:
    detector = a_detector(latest)
    detector.suspect(1472, "losses", now, is_silent=False)
    return detector


def sent(packet: ProbePacket, at: float) -> SentProbe:
    return SentProbe(packet, at)


def test_dpl_50_dpl_52_enough_losses_raise_suspicion_at_once() -> None:
    detector = a_detector()
    assert detector.on_packets_lost(1472, COUNT - 1, 9.0, 10.0) is None
    assert detector.on_packets_lost(1472, 1, 9.0, 10.0) is not None


def test_dpl_50_a_single_loss_raises_suspicion_after_a_round_trip_without_an_answer() -> None:
    detector = a_detector()
    detector.on_packets_lost(1472, 1, 9.9, 10.0)
    assert (detector.get_timer(), detector.on_timer(10.05)) == (10.0 + RTT, None)
    assert detector.on_timer(10.0 + RTT) is not None


def test_dpl_50_a_probe_timeout_with_large_packets_under_way_raises_suspicion() -> None:
    detector = a_detector()
    assert detector.on_pto(1472) is not None
    assert detector.on_pto(1200) is None


def test_the_question_is_a_large_and_a_small_packet_and_then_smaller_sizes_too() -> None:
    detector = suspected()
    first = detector.packets_to_send(10.0, WINDOW)
    assert [(each.size, each.purpose) for each in first] == [
        (1472, Purpose.PAIR),
        (SMALL_SIZE, Purpose.COMPANION),
        (SMALL_SIZE, Purpose.COMPANION),
    ]
    assert detector.packets_to_send(10.05, WINDOW) == []
    second = detector.packets_to_send(10.0 + RTT, WINDOW)
    assert {each.purpose for each in second[3:]} == {Purpose.SEARCH}
    assert all(1200 < each.size < 1472 for each in second[3:])


def test_under_suspicion_a_full_window_leaves_room_for_a_pair_and_three_probes() -> None:
    detector = suspected()
    assert len(detector.packets_to_send(10.0, 0)) == 3
    assert 1 <= len(detector.packets_to_send(10.0 + RTT, 0)[3:]) <= 3


def test_a_queue_of_our_own_drains_first() -> None:
    detector = suspected(latest=0.3)
    assert detector.is_holding
    assert detector.packets_to_send(10.1, WINDOW) == []
    assert detector.packets_to_send(10.2, WINDOW) != []
    assert not detector.is_holding


def test_while_a_pair_speaks_against_the_path_and_there_is_a_queue_large_packets_wait() -> None:
    trips = RoundTrips()
    trips.update(RTT, RTT, RTT, 0.3)
    detector = BlackHoleDetector(1200, 4, trips, SentProbes())
    detector.suspect(1472, "losses", 10.0, is_silent=False)
    trips.update(3 * RTT, RTT, RTT, 0.3)
    assert not detector.is_holding
    convicting_pairs(detector, 1)
    assert detector.is_holding
    trips.update(RTT, RTT, RTT, 0.3)
    assert not detector.is_holding
    trips.update(3 * RTT, RTT, RTT, 0.3)
    detector.acquit(10.3)
    assert not detector.is_holding


def test_dpl_52_a_large_packet_that_was_sent_later_and_arrives_acquits() -> None:
    detector = suspected()
    assert not detector.on_packets_acked(1472, 1, 9.9)
    assert not detector.on_packets_acked(1400, 1, 10.2)
    assert detector.on_packets_acked(1472, 1, 10.2)


def test_dpl_52_the_large_packet_of_a_pair_acquits_even_if_it_left_when_suspicion_began() -> None:
    detector = suspected(now=10.0)
    large, *_ = detector.packets_to_send(10.0, WINDOW)
    assert detector.on_probe_acked(sent(large, 10.0), 10.1)


def test_smaller_sizes_that_arrive_are_what_a_conviction_goes_on_with() -> None:
    detector = suspected()
    detector.packets_to_send(10.0, WINDOW)
    detector.packets_to_send(10.0 + RTT, WINDOW)
    probe = sent(ProbePacket(1372, Purpose.SEARCH, detector.below), 10.1)
    assert not detector.on_probe_acked(probe, 10.2)
    assert detector.trial is not None
    assert (detector.trial.proved, detector.below.low) == (1372, 1372)
    below = detector.below
    assert detector.convict() is below
    assert (detector.trial, detector.get_timer()) == (None, None)


def convicting_pairs(detector: BlackHoleDetector, count: int, *, excused: bool = False) -> None:
    now = 10.0
    for _ in range(count):
        large, small, *_ = detector.packets_to_send(now, WINDOW)
        lost = sent(large, now)
        lost.is_excused = excused
        now += RTT
        detector.on_probe_acked(sent(small, now - RTT), now)
        detector.on_pair_lost(lost)


def test_dpl_52_fewer_pairs_than_needed_do_not_convict() -> None:
    detector = suspected()
    assert detector.trial is not None
    convicting_pairs(detector, detector.trial.needed - 1)
    assert not detector.is_convicted


def test_dpl_50_pairs_of_which_only_the_small_one_arrives_convict() -> None:
    detector = suspected()
    assert detector.trial is not None
    convicting_pairs(detector, detector.trial.needed)
    assert detector.is_convicted


def test_pairs_that_a_stall_of_ours_fell_into_do_not_convict() -> None:
    detector = suspected()
    assert detector.trial is not None
    convicting_pairs(detector, detector.trial.needed, excused=True)
    assert not detector.is_convicted


def test_a_stall_voids_the_pairs_under_way() -> None:
    detector = suspected()
    detector.packets_to_send(10.0, WINDOW)
    detector.excuse(12.0)
    assert detector.trial is not None
    assert all(pair.is_void for pair in detector.trial.pairs)
    assert detector.get_timer() == 12.0 + RTT


def test_one_of_the_two_small_packets_is_enough() -> None:
    detector = suspected()
    assert detector.trial is not None
    large, lost, arrived = detector.packets_to_send(10.0, WINDOW)
    detector.on_pair_lost(sent(lost, 10.0))
    detector.on_pair_lost(sent(large, 10.0))
    assert detector.trial.count(RTT) == 0
    detector.on_probe_acked(sent(arrived, 10.0), 10.1)
    assert detector.trial.count(RTT) == 1


def test_dpl_43_after_a_false_alarm_more_losses_are_needed_until_it_is_calm() -> None:
    detector = suspected()
    detector.acquit(10.2)
    assert detector.evidence.threshold == 2 * COUNT
    detector.suspect(1472, "losses", 11.0, is_silent=False)
    detector.acquit(11.2)
    assert detector.evidence.threshold == 4 * COUNT
    detector.suspect(1472, "losses", 12.0 + CALM, is_silent=False)
    detector.acquit(12.2 + CALM)
    assert detector.evidence.threshold == 2 * COUNT


def test_dpl_15_hints_raise_suspicion_ever_more_rarely_when_they_are_wrong() -> None:
    detector = a_detector()
    assert detector.on_hint(1372, 10.0)
    detector.suspect(1472, "a hint", 10.0, is_silent=True)
    assert not detector.on_hint(1300, 10.1)
    detector.acquit(10.2)
    assert not detector.on_hint(1372, 10.2 + HINT_PAUSE / 2)
    assert detector.on_hint(1372, 10.3 + HINT_PAUSE)
    detector.suspect(1472, "a hint", 11.5, is_silent=True)
    detector.acquit(11.6)
    assert not detector.on_hint(1372, 11.7 + HINT_PAUSE)
    assert detector.on_hint(1372, 11.7 + 2 * HINT_PAUSE)


def test_dpl_58_a_hint_is_the_first_smaller_size_to_be_asked_for() -> None:
    detector = a_detector()
    detector.on_hint(1333, 10.0)
    detector.suspect(1472, "a hint", 10.0, is_silent=True)
    detector.packets_to_send(10.0, 0)
    assert 1333 in [each.size for each in detector.packets_to_send(10.0 + RTT, 0)]


def test_dpl_31_when_the_path_is_gone_so_is_suspicion() -> None:
    detector = suspected()
    detector.stop()
    assert (detector.trial, detector.is_holding, detector.get_timer()) == (None, False, None)
