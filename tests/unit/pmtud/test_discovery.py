"""qtunnel.pmtud.discovery: the states and the search (RFC 8899 §5). Sizes in bytes of UDP payload."""

from __future__ import annotations

import pytest

from qtunnel.pmtud.config import MAX_PROBES, PMTU_RAISE_TIMER, PROBE_TIMER, PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery
from qtunnel.pmtud.events import SearchEnded, SizeChanged, StateChanged, Unusable
from qtunnel.pmtud.probes import ProbePacket, Purpose
from qtunnel.pmtud.sizes import udp_payload
from qtunnel.pmtud.states import State
from tests.unit.pmtud.driver import RTT, START, Driver


def test_it_begins_disabled_at_the_base_size() -> None:
    discovery = PathMtuDiscovery(PathMtuConfig())
    assert (discovery.state, discovery.size, discovery.get_timer()) == (State.DISABLED, 1200, None)


# States


def test_dpl_30_dpl_33_qtr_22_a_handshake_of_1200_bytes_confirms_the_base_size_too() -> None:
    driver = Driver()
    driver.confirm()
    driver.take_events()
    changes = [(each.old, each.new) for each in driver.events if isinstance(each, StateChanged)]
    assert changes == [(State.DISABLED, State.BASE), (State.BASE, State.SEARCHING)]


def test_dpl_32_dpl_33_what_carried_less_is_followed_by_a_probe_of_the_base_size_at_once() -> None:
    driver = Driver()
    driver.confirm(carried=600)
    assert driver.discovery.state is State.BASE
    driver.round_trip()
    assert [packet.size for packet in driver.sent if packet.is_probe] == [1200]
    assert driver.purposes() == [Purpose.BASE, Purpose.TRAILER, Purpose.TRAILER]
    assert driver.discovery.state is State.SEARCHING


def test_dpl_34_dpl_35_three_base_probes_lost_make_the_path_unusable() -> None:
    driver = Driver(limit=1100)
    driver.confirm(carried=600)
    for count in range(MAX_PROBES):
        assert (driver.discovery.state, count) == (State.BASE, count)
        driver.round_trip()
    assert driver.discovery.state is State.ERROR
    assert driver.discovery.size == 1200
    assert [event.size for event in driver.events if isinstance(event, Unusable)] == [1200]


def test_dpl_34_a_base_probe_that_nobody_answers_is_repeated_after_the_probe_timer() -> None:
    driver = Driver()
    driver.confirm(carried=600)
    driver.send()
    assert driver.discovery.get_timer() == START + PROBE_TIMER
    driver.now += PROBE_TIMER
    driver.discovery.handle_timer(driver.now)
    assert [packet.size for _, packet in driver.send()] == [1200]
    assert driver.discovery.state is State.BASE


def test_dpl_41_an_unusable_path_is_asked_again_and_then_searched() -> None:
    driver = Driver(limit=1100)
    driver.confirm(carried=600)
    driver.until(lambda: driver.discovery.state is State.ERROR)
    driver.limit = 1400
    timer = driver.discovery.get_timer()
    assert timer is not None
    assert driver.now < timer <= driver.now + PROBE_TIMER
    driver.now = timer
    driver.round_trip()
    assert driver.discovery.state is State.SEARCHING
    driver.run()
    assert driver.discovery.size == 1400


@pytest.mark.parametrize("carried", [None, 600])
def test_dpl_31_a_lost_path_disables_and_another_beginning_searches_anew(carried: int | None) -> None:
    driver = Driver(limit=1400)
    driver.confirm(carried)
    driver.run()
    driver.discovery.on_path_lost(driver.now)
    assert (driver.discovery.state, driver.discovery.size, driver.discovery.get_timer()) == (
        State.DISABLED,
        1200,
        None,
    )
    driver.now += 1.0
    driver.limit = 1300
    driver.confirm()
    driver.run()
    assert driver.discovery.size == 1300


def test_dpl_31_probes_of_before_say_nothing_about_the_path_of_now() -> None:
    driver = Driver()
    driver.confirm()
    probes = driver.send()
    driver.discovery.on_path_lost(driver.now)
    driver.confirm()
    driver.now += RTT
    driver.answer(probes)
    assert driver.discovery.size == 1200


def test_confirmed_twice_is_confirmed_once() -> None:
    driver = Driver().found()
    driver.discovery.on_confirmed(driver.now)
    assert driver.discovery.state is State.SEARCH_COMPLETE


# Search


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("mtu", [1280, 1281, 1300, 1340, 1380, 1400, 1419, 1432, 1450, 1472, 1492, 1499, 1500])
def test_dpl_36_dpl_37_dpl_42_the_size_is_found_to_the_byte(mtu: int, version: int) -> None:
    limit = udp_payload(mtu, version)
    driver = Driver(PathMtuConfig(version=version, interface=udp_payload(1500, version)), limit=limit).found()
    assert driver.discovery.size == limit
    [end] = [event for event in driver.events if isinstance(event, SearchEnded)]
    assert (end.size, end.flights <= 5, end.probe_bytes <= 30_000) == (limit, True, True)
    assert end.probes == driver.discovery.probes_sent


def test_dpl_36_dpl_10_a_probe_that_arrives_raises_the_size_at_once() -> None:
    driver = Driver(limit=1400)
    driver.confirm()
    driver.round_trip()
    assert driver.discovery.size == udp_payload(1400, 4)
    driver.round_trip()
    assert 1400 - driver.discovery.size <= 20


def test_dpl_09_each_new_size_is_told_with_a_reason() -> None:
    driver = Driver(limit=1337).found()
    changes = [event for event in driver.events if isinstance(event, SizeChanged)]
    assert [each.old for each in changes] == [1200, *(each.new for each in changes[:-1])]
    assert changes[-1].new == driver.discovery.size == 1337
    assert all(each.reason for each in changes)
    assert driver.discovery.since == changes[-1].time


def test_dpl_03_without_an_acknowledgement_nothing_is_raised() -> None:
    driver = Driver()
    driver.confirm()
    driver.send()
    assert driver.discovery.size == 1200


def test_dpl_06_a_flight_waits_for_the_answer_to_the_one_before_and_for_a_round_trip() -> None:
    driver = Driver(limit=1400)
    driver.confirm()
    probes = driver.send()
    assert probes
    assert driver.send() == []
    driver.now += RTT / 2
    driver.answer(probes)  # early, as if the last answer was a short cut
    assert driver.send() == []
    assert driver.discovery.get_timer() == START + RTT
    driver.now = START + RTT
    assert driver.send()


def test_dpl_06_a_flight_is_no_larger_than_the_congestion_window_allows() -> None:
    driver = Driver(limit=1400, window=3000)
    driver.confirm()
    assert sum(packet.size for _, packet in driver.send()) <= 3000


def test_dpl_06_without_room_nothing_is_sent_and_no_timer_runs() -> None:
    driver = Driver(window=0)
    driver.confirm()
    assert (driver.send(), driver.discovery.get_timer()) == ([], None)
    driver.window = 100_000
    assert driver.send()


def test_dpl_06_sequential_sends_one_probe_in_a_round_trip() -> None:
    driver = Driver(PathMtuConfig(search="sequential"), limit=1400).found()
    probes = [sum(packet.is_probe for packet in flight) for flight in driver.flights]
    assert set(probes) == {1}
    assert driver.discovery.size == 1400


def test_dpl_11_dpl_12_a_late_answer_to_a_smaller_probe_does_not_lower_and_counts_once() -> None:
    driver = Driver(limit=1472)
    driver.confirm()
    probes = driver.send()
    (largest, _), *rest = probes
    driver.now += RTT
    driver.discovery.on_probes_acked([largest], driver.now)
    driver.discovery.on_probes_acked([number for number, _ in rest], driver.now)
    driver.discovery.on_probes_acked([largest, "never sent"], driver.now)
    assert driver.discovery.size == 1472


@pytest.mark.parametrize("limit", [1300, 1472])
def test_dpl_11_a_probe_thought_lost_that_arrives_late_raises_and_searches_on(limit: int) -> None:
    driver = Driver(limit=1300).found()
    number = next(
        number
        for number, packet in enumerate(driver.sent, start=1)
        if packet.is_probe and packet.size == udp_payload(1400, 4)
    )
    driver.limit = limit
    driver.discovery.on_probes_acked([number], driver.now)
    assert (driver.discovery.size, driver.discovery.state) == (udp_payload(1400, 4), State.SEARCHING)


def test_dpl_23_dpl_27_two_losses_do_not_end_a_size() -> None:
    asked: list[int] = []

    def loses(packet: ProbePacket) -> bool:
        asked.append(packet.size)
        return packet.size == 1400 and asked.count(1400) < MAX_PROBES

    driver = Driver(limit=1400, loses=loses).found()
    assert (driver.discovery.size, asked.count(1400)) == (1400, MAX_PROBES)


def test_dpl_20_where_nothing_is_answered_the_probe_timer_gives_probes_up() -> None:
    driver = Driver()
    driver.confirm()
    driver.send()
    assert driver.discovery.get_timer() == START + PROBE_TIMER
    driver.discovery.handle_timer(START + PROBE_TIMER - 0.001)
    assert driver.discovery.probes_lost == 0
    driver.discovery.handle_timer(START + PROBE_TIMER)
    assert driver.discovery.probes_lost == 8


def test_probes_that_were_discarded_are_asked_again_and_prove_nothing() -> None:
    driver = Driver(limit=1400)
    driver.confirm()
    probes = driver.send()
    driver.discovery.on_probes_discarded([number for number, _ in probes], driver.now)
    assert driver.discovery.probes_lost == 0
    driver.now += RTT
    driver.run()
    assert driver.discovery.size == 1400


def test_a_discarded_base_probe_is_sent_again() -> None:
    driver = Driver()
    driver.confirm(carried=600)
    [(number, _)] = driver.send()
    driver.discovery.on_probes_discarded([number], driver.now)
    assert [packet.size for _, packet in driver.send()] == [1200]


def test_dpl_37_the_largest_size_allowed_ends_the_search_and_no_timer_looks_for_more() -> None:
    driver = Driver(PathMtuConfig(interface=1472, ceiling=1400)).found()
    assert (driver.discovery.size, driver.discovery.get_timer()) == (1400, None)
    [end] = [event for event in driver.events if isinstance(event, SearchEnded)]
    assert "ceiling" in end.reason


def test_dpl_40_dpl_22_qtr_23_when_it_is_found_nothing_is_sent_for_ten_minutes() -> None:
    driver = Driver(limit=1400).found()
    count = len(driver.sent)
    end = driver.now
    while driver.now < end + PMTU_RAISE_TIMER - 1:
        driver.now += 1.0
        driver.discovery.handle_timer(driver.now)
        driver.send()
    assert len(driver.sent) == count


def test_dpl_21_dpl_39_the_raise_timer_looks_for_more_after_ten_minutes() -> None:
    driver = Driver(limit=1400).found()
    end = driver.now
    assert driver.discovery.get_timer() == end + PMTU_RAISE_TIMER
    driver.limit = 1472
    driver.discovery.handle_timer(end + PMTU_RAISE_TIMER - 1)
    assert driver.discovery.state is State.SEARCH_COMPLETE
    driver.now = end + PMTU_RAISE_TIMER
    driver.round_trip()
    driver.run()
    assert driver.discovery.size == 1472


def test_dpl_39_a_raise_that_finds_nothing_keeps_the_size_and_looks_again_later() -> None:
    driver = Driver(PathMtuConfig(raise_interval=60.0), limit=1400).found()
    probes = driver.discovery.probes_sent
    driver.now += 60.0
    driver.round_trip()
    driver.run()
    assert driver.discovery.size == 1400
    assert driver.discovery.probes_sent - probes <= 4
    assert driver.discovery.get_timer() == driver.now + 60.0


@pytest.mark.parametrize("most", [1200, 1201])
def test_a_path_on_which_nothing_larger_is_allowed_needs_no_probe(most: int) -> None:
    driver = Driver(PathMtuConfig(peer_limit=most), limit=most).found()
    assert (driver.discovery.size, len(driver.flights)) == (most, most - 1200)


# What is known beforehand


def test_a_told_size_is_used_from_the_start_without_a_probe() -> None:
    driver = Driver(PathMtuConfig(told=1422), limit=1300)
    driver.confirm()
    driver.round_trip()
    driver.lose_packets(100)
    driver.discovery.on_pto(1422, driver.now)
    driver.discovery.on_ptb(1300, driver.now)
    driver.discovery.on_refused(1422, driver.now)
    driver.discovery.on_path_lost(driver.now)
    driver.round_trip()
    assert (driver.discovery.size, driver.sent, driver.discovery.get_timer()) == (1422, [], None)
    assert "the link MTU was told: 1450" in driver.discovery.why(driver.now)[0]


def test_dpl_05_a_told_size_is_not_larger_than_the_peer_takes() -> None:
    assert PathMtuDiscovery(PathMtuConfig(told=1472, peer_limit=1400)).size == 1400
    assert PathMtuDiscovery(PathMtuConfig(told=900)).size == 1200


def test_a_remembered_size_takes_one_small_flight() -> None:
    driver = Driver(PathMtuConfig(remembered=1400), limit=1400).found()
    assert (driver.discovery.size, driver.discovery.probes_sent) == (1400, 1)
    assert driver.discovery.probe_bytes <= 3000


@pytest.mark.parametrize("limit", [1210, 1300, 1399])
def test_a_remembered_size_that_is_no_longer_right_is_no_obstacle(limit: int) -> None:
    driver = Driver(PathMtuConfig(remembered=1400), limit=limit).found()
    assert driver.discovery.size == limit


def test_a_remembered_size_is_raised_by_the_raise_timer() -> None:
    driver = Driver(PathMtuConfig(remembered=1400), limit=1472).found()
    driver.now += PMTU_RAISE_TIMER
    driver.round_trip()
    driver.run()
    assert driver.discovery.size == 1472


def test_a_remembered_size_above_the_most_is_of_no_use() -> None:
    driver = Driver(PathMtuConfig(remembered=1472, peer_limit=1400), limit=1472).found()
    assert driver.discovery.size == 1400


def test_a_floor_is_where_it_begins() -> None:
    driver = Driver(PathMtuConfig(floor=1352), limit=1400)
    assert driver.discovery.size == 1352
    driver.confirm()
    driver.run()
    assert driver.discovery.size == 1400


def test_a_floor_above_what_the_path_carries_makes_it_unusable() -> None:
    driver = Driver(PathMtuConfig(floor=1352), limit=1300)
    driver.confirm(carried=1200)
    driver.until(lambda: driver.discovery.state is State.ERROR)
    assert driver.kinds().count("Unusable") == 1


def test_why_tells_the_story() -> None:
    driver = Driver(limit=1400).found()
    story = driver.discovery.why(driver.now)
    assert any("flight 1 asked for link MTU 1500" in each for each in story)
    assert "link MTU 1428 is the end: one byte more does not get through" in story[-1]
    assert driver.discovery.story[-1].size == 1400
