"""qtunnel.pmtud.discovery and what routers and our own kernel say (RFC 8899 §4.6). Bytes of UDP payload."""

from __future__ import annotations

import pytest

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.sizes import udp_payload
from qtunnel.pmtud.states import State
from tests.unit.pmtud.driver import RTT, START, Driver


def test_dpl_54_dpl_58_qtr_20_a_message_that_is_true_is_confirmed_by_probing() -> None:
    driver = Driver().found()
    driver.limit = 1372
    driver.discovery.on_ptb(1372, driver.now)
    assert (driver.discovery.size, driver.discovery.is_suspicious) == (1472, True)
    begin = driver.now
    driver.until(lambda: driver.discovery.size < 1472)
    assert driver.discovery.size == 1372
    assert driver.now - begin <= 7 * RTT


def test_dpl_54_dpl_61_a_message_that_is_false_changes_nothing() -> None:
    driver = Driver().found()
    driver.discovery.on_ptb(1250, driver.now)
    for _ in range(20):
        driver.round_trip()
        assert driver.discovery.size == 1472
    assert driver.kinds().count("Acquitted") == 1


@pytest.mark.parametrize(("version", "ignored", "considered"), [(4, 1227, 1228), (6, 1279, 1280)])
def test_dpl_55_dpl_56_dpl_57_qtr_17_below_the_smallest_packet_of_quic_it_is_ignored(
    version: int, ignored: int, considered: int
) -> None:
    config = PathMtuConfig(version=version, interface=udp_payload(1500, version))
    driver = Driver(config, limit=udp_payload(1500, version)).found()
    driver.discovery.on_ptb(udp_payload(ignored, version), driver.now)
    assert (driver.discovery.hints_ignored, driver.discovery.is_suspicious) == (1, False)
    driver.discovery.on_ptb(udp_payload(considered, version), driver.now)
    assert (driver.discovery.hints_ignored, driver.discovery.is_suspicious) == (1, True)


def test_dpl_54_qtr_19_a_message_never_raises() -> None:
    driver = Driver(limit=1300).found()
    for size in range(1300, 1500):
        driver.discovery.on_ptb(size, driver.now)
    assert (driver.discovery.size, driver.discovery.state, driver.send()) == (1300, State.SEARCH_COMPLETE, [])


def test_dpl_36_dpl_59_between_the_size_and_what_is_asked_for_it_is_asked_next() -> None:
    driver = Driver(limit=1410)
    driver.confirm()
    driver.round_trip()
    assert driver.discovery.size < 1410
    driver.discovery.on_ptb(1410, driver.now)
    assert 1410 in [packet.size for _, packet in driver.send()]


@pytest.mark.parametrize("size", [1472, 1473, 65535, 1 << 40, 0, -5])
def test_dpl_60_what_cannot_be_is_ignored(size: int) -> None:
    driver = Driver().found()
    driver.discovery.on_ptb(size, driver.now)
    assert (driver.discovery.hints_ignored, driver.discovery.is_suspicious) == (1, False)


def test_dpl_60_at_least_what_was_lost_is_no_news() -> None:
    driver = Driver(limit=1300)
    driver.confirm()
    driver.round_trip()
    driver.discovery.on_ptb(1472 - 1, driver.now)
    assert driver.discovery.hints_ignored == 1


def test_dpl_15_ten_thousand_forged_messages_cost_a_few_packets() -> None:
    driver = Driver().found()
    before = len(driver.sent)
    begin = driver.now
    while driver.now < begin + 10.0:
        for _ in range(100):
            driver.discovery.on_ptb(1300, driver.now)
        driver.round_trip()
    assert driver.discovery.size == 1472
    assert len(driver.sent) - before <= 4 * 3


def test_dpl_61_messages_never_lead_below_the_base() -> None:
    driver = Driver(limit=1200)
    driver.confirm()
    driver.discovery.on_ptb(1200, driver.now)
    driver.run()
    driver.discovery.on_ptb(1200, driver.now)
    assert (driver.discovery.size, driver.discovery.state) == (1200, State.SEARCH_COMPLETE)


# Our own kernel


def refuse(driver: Driver, local: int) -> None:
    """Send what is due; the kernel refuses what is larger than local."""
    for number, packet in driver.send():
        if packet.size > local:
            driver.discovery.on_probes_discarded([number], driver.now)
            driver.discovery.on_refused(packet.size, driver.now)
        else:
            driver.discovery.on_probes_acked([number], driver.now + RTT)
    driver.now += RTT
    driver.take_events()


def test_a_probe_that_the_kernel_refuses_has_failed() -> None:
    driver = Driver()
    driver.confirm()
    for _ in range(20):
        refuse(driver, 1392)
    assert (driver.discovery.size, driver.discovery.state) == (1392, State.SEARCH_COMPLETE)


def test_an_ordinary_packet_that_the_kernel_refuses_raises_suspicion_and_its_probes_decide() -> None:
    driver = Driver().found()
    driver.discovery.on_refused(1472, driver.now)
    assert driver.discovery.is_suspicious
    for _ in range(20):
        refuse(driver, 1392)
    assert (driver.discovery.size, driver.discovery.state) == (1392, State.SEARCH_COMPLETE)


def test_a_refused_packet_of_the_base_size_says_nothing_of_the_path() -> None:
    driver = Driver().found()
    driver.discovery.on_refused(1200, driver.now)
    assert not driver.discovery.is_suspicious


def test_hints_before_the_path_is_confirmed_are_harmless() -> None:
    driver = Driver()
    driver.discovery.on_ptb(1300, START)
    driver.discovery.on_refused(1400, START)
    driver.discovery.on_pto(1400, START)
    driver.discovery.on_stall(START)
    assert (driver.discovery.state, driver.discovery.size) == (State.DISABLED, 1200)
