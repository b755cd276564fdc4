"""qtunnel.pmtud.discovery on a path that becomes narrower, or does not (RFC 8899 §4.3). Bytes of UDP payload."""

from __future__ import annotations

import pytest

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.events import Acquitted, Convicted, SizeChanged, StateChanged, Suspected
from qtunnel.pmtud.probes import ProbePacket, Purpose
from qtunnel.pmtud.states import State
from tests.unit.pmtud.driver import RTT, Driver


def convicted(driver: Driver) -> bool:
    return "Convicted" in driver.kinds()


def shrunk(limit: int, config: PathMtuConfig | None = None, before: int = 1472) -> Driver:
    """Return one whose path became narrower, and that has lost three full packets since."""
    driver = Driver(config or PathMtuConfig(), limit=before).found()
    driver.now += 10.0
    driver.limit = limit
    driver.lose_packets()
    return driver


@pytest.mark.parametrize("limit", [1471, 1468, 1400, 1372, 1301, 1201, 1200])
def test_dpl_38_dpl_50_dpl_51_a_narrower_path_is_found_without_icmp_and_then_to_the_byte(limit: int) -> None:
    driver = shrunk(limit)
    begin = driver.now
    driver.until(lambda: convicted(driver))
    assert driver.now - begin <= 6 * RTT
    driver.run()
    assert driver.discovery.size == limit


def test_dpl_38_conviction_goes_through_the_base_state_and_tells_what_to_discard() -> None:
    driver = shrunk(1400)
    del driver.events[:-1]
    driver.until(lambda: convicted(driver))
    [suspected] = [event for event in driver.events if isinstance(event, Suspected)]
    [conviction] = [event for event in driver.events if isinstance(event, Convicted)]
    index = driver.events.index(conviction)
    change = driver.events[index + 1]
    assert isinstance(change, SizeChanged)
    assert (conviction.old, conviction.new, change.new) == (1472, driver.discovery.size, conviction.new)
    assert conviction.suspected_at == suspected.time
    assert conviction.pairs >= 3
    states = [event.new for event in driver.events[index:] if isinstance(event, StateChanged)]
    assert states[:2] == [State.BASE, State.SEARCHING]


def test_dpl_51_the_size_after_a_conviction_is_one_that_has_got_through_since() -> None:
    driver = shrunk(1400)
    driver.until(lambda: convicted(driver))
    arrived = {packet.size for packet in driver.sent if packet.purpose is Purpose.SEARCH and packet.size <= 1400}
    assert driver.discovery.size == max(arrived)


def test_a_path_that_lost_four_bytes_gives_up_four_bytes_only() -> None:
    driver = shrunk(1418, before=1422)
    driver.until(lambda: convicted(driver))
    driver.run()
    assert driver.discovery.size == 1418


def test_dpl_35_dpl_38_a_path_that_carries_not_even_the_base_size_becomes_unusable() -> None:
    driver = shrunk(1100)
    driver.until(lambda: driver.discovery.state is State.ERROR)
    assert driver.discovery.size == 1200
    assert "Unusable" in driver.kinds()


def test_dpl_52_losses_alone_convict_nobody() -> None:
    driver = Driver().found()
    for _ in range(50):
        driver.lose_packets(100)
        driver.round_trip()
    assert not convicted(driver)
    assert driver.discovery.size == 1472
    assert driver.kinds().count("Suspected") == driver.kinds().count("Acquitted") > 0


def test_dpl_52_a_single_full_packet_that_arrives_acquits() -> None:
    driver = shrunk(1400)
    assert driver.discovery.is_suspicious
    driver.round_trip()
    driver.discovery.on_packets_acked(1472, 1, driver.now - RTT / 2, driver.now)
    driver.take_events()
    assert isinstance(driver.events[-1], Acquitted)
    assert not driver.discovery.is_suspicious


def test_dpl_52_when_small_packets_are_lost_too_the_size_is_not_the_reason() -> None:
    driver = Driver(loses=lambda _: True)
    driver.loses = lambda _: False
    driver.found()
    driver.loses = lambda _: True
    driver.lose_packets()
    for _ in range(30):
        driver.round_trip()
    assert not convicted(driver)
    driver.loses = lambda _: False
    driver.now += 60.0
    driver.round_trip()
    driver.round_trip()
    assert not driver.discovery.is_suspicious
    assert driver.discovery.size == 1472


def test_dpl_11_a_late_answer_to_a_full_probe_takes_a_conviction_back() -> None:
    driver = shrunk(1400)
    driver.until(lambda: convicted(driver))
    pairs = [number for number, packet in numbered(driver) if packet.purpose is Purpose.PAIR]
    driver.discovery.on_probes_acked([pairs[-1]], driver.now)
    assert driver.discovery.size == 1472


def test_dpl_11_an_answer_to_what_was_sent_before_the_path_changed_does_not() -> None:
    driver = Driver(limit=1472)
    driver.confirm()
    late, *rest = driver.send()
    driver.now += RTT
    driver.answer(rest)
    driver.discovery.on_probes_lost([late[0]], driver.now)
    driver.run()
    driver.now += 10.0
    driver.limit = 1300
    driver.lose_packets()
    driver.until(lambda: convicted(driver))
    driver.discovery.on_probes_acked([late[0]], driver.now)
    assert driver.discovery.size <= 1300


def numbered(driver: Driver) -> list[tuple[int, ProbePacket]]:
    return list(enumerate(driver.sent, start=1))


def test_one_lost_full_packet_on_an_idle_connection_is_enough_to_ask() -> None:
    driver = Driver().found()
    driver.limit = 1400
    driver.lose_packets(1)
    assert not driver.discovery.is_suspicious
    assert driver.discovery.get_timer() == driver.now + RTT
    driver.until(lambda: convicted(driver))
    driver.run()
    assert driver.discovery.size == 1400


def test_a_probe_timeout_with_a_full_packet_under_way_is_enough_to_ask() -> None:
    driver = Driver().found()
    driver.limit = 1400
    driver.discovery.on_pto(0, driver.now)
    assert not driver.discovery.is_suspicious
    driver.discovery.on_pto(1472, driver.now)
    assert driver.discovery.is_suspicious
    driver.until(lambda: convicted(driver))


def test_a_stall_of_our_own_is_no_evidence() -> None:
    driver = Driver().found()
    sent = driver.now
    driver.now += 0.95
    driver.discovery.on_stall(driver.now)
    driver.lose_packets(100, sent=sent)
    assert not driver.discovery.is_suspicious


def test_a_stall_in_the_middle_of_a_trial_voids_what_was_asked() -> None:
    driver = shrunk(1400)
    for _ in range(3):
        driver.discovery.handle_timer(driver.now)
        probes = driver.send()
        driver.now += 0.95
        driver.discovery.on_stall(driver.now)
        driver.answer(probes)
        driver.now += RTT
    assert not convicted(driver)
    assert driver.discovery.is_suspicious


def test_a_full_queue_of_our_own_is_let_drain_before_the_question_is_put() -> None:
    driver = Driver().found()
    driver.discovery.on_rtt(3 * RTT, 3 * RTT, RTT, 1.0)
    driver.lose_packets()
    assert driver.discovery.is_holding
    assert driver.send() == []
    driver.now += 2 * RTT
    assert driver.send()
    assert not driver.discovery.is_holding


def test_dpl_40_a_trial_is_the_only_reason_for_probes_of_the_present_size() -> None:
    driver = Driver(limit=1472).found()
    driver.lose_packets(1)
    driver.discovery.on_packets_acked(1472, 1, driver.now + 0.01, driver.now + 0.02)
    driver.now += 5.0
    driver.discovery.handle_timer(driver.now)
    assert driver.send() == []


@pytest.mark.parametrize("state", ["disabled", "at the base size"])
def test_where_nothing_can_be_given_up_nothing_is_suspected(state: str) -> None:
    driver = Driver(limit=1200)
    if state != "disabled":
        driver.found()
    driver.lose_packets(100, size=1472)
    driver.lose_packets(100, size=1200)
    driver.discovery.on_pto(1472, driver.now)
    assert not driver.discovery.is_suspicious


def test_losses_of_probes_are_no_evidence() -> None:
    driver = Driver(limit=1300).found()
    assert driver.discovery.probes_lost > 10
    assert "Suspected" not in driver.kinds()


def test_dpl_38_a_black_hole_during_the_search_is_found_too() -> None:
    driver = Driver(limit=1440)
    driver.confirm()
    driver.round_trip()
    assert driver.discovery.state is State.SEARCHING
    driver.limit = 1300
    driver.lose_packets()
    driver.until(lambda: convicted(driver))
    driver.run()
    assert driver.discovery.size == 1300


def test_dpl_37_a_search_whose_last_probe_is_lost_during_a_trial_ends_with_the_acquittal() -> None:
    driver = Driver(limit=1471)
    driver.confirm()
    driver.until(lambda: driver.discovery.size == 1471)
    last = driver.send()
    driver.lose_packets()
    driver.now += RTT
    driver.answer(last)
    assert driver.discovery.state is State.SEARCHING
    driver.round_trip()
    assert driver.discovery.state is State.SEARCH_COMPLETE


def test_dpl_43_a_path_whose_size_goes_up_and_down_is_looked_at_ever_less_often() -> None:
    driver = Driver(PathMtuConfig(raise_interval=10.0), limit=1472).found()
    waits = []
    for _ in range(5):
        driver.limit = 1400
        driver.lose_packets()
        driver.until(lambda: driver.discovery.size == 1400 and driver.discovery.state is State.SEARCH_COMPLETE)
        begin = driver.now
        driver.limit = 1472
        timer = driver.discovery.get_timer()
        assert timer is not None
        waits.append(round(timer - begin, 3))
        driver.now = timer
        driver.round_trip()
        driver.run()
        assert driver.discovery.size == 1472
    assert waits == [10.0, 20.0, 40.0, 80.0, 80.0]


def test_off_finds_nothing_and_loss_count_believes_at_once() -> None:
    driver = shrunk(1400, PathMtuConfig(black_hole="off"))
    assert driver.kinds().count("Suspected") == 0
    driver = shrunk(1472, PathMtuConfig(black_hole="loss_count"))
    assert convicted(driver)
    driver.run()
    assert driver.discovery.size >= 1200


def test_why_tells_of_a_black_hole_in_sentences() -> None:
    driver = shrunk(1400)
    driver.until(lambda: convicted(driver))
    driver.run()
    story = "\n".join(driver.discovery.why(driver.now))
    assert "suspicion: 3 packets of up to 1472 bytes were lost, and none as large arrived after" in story
    assert "large packets in a row were lost while the small ones sent with them arrived" in story
    assert "link MTU 1428 is the end: one byte more does not get through" in story
