"""qtunnel.pmtud.config. Sizes in bytes of UDP payload."""

from __future__ import annotations

import pytest

from qtunnel.pmtud.config import MAX_PROBES, PMTU_RAISE_TIMER, PROBE_TIMER, PathMtuConfig
from qtunnel.pmtud.sizes import udp_payload


def test_dpl_24_dpl_25_the_base_size_is_quics_least_and_ipv6s_own() -> None:
    assert PathMtuConfig(version=4).base == 1200
    assert PathMtuConfig(version=6).base == 1232


@pytest.mark.parametrize(("version", "most"), [(4, 1472), (6, 1452)])
def test_dpl_26_the_most_is_what_the_interface_takes(version: int, most: int) -> None:
    assert PathMtuConfig(version=version, interface=udp_payload(1500, version)).most == most


def test_dpl_05_the_most_is_the_least_of_interface_peer_and_ceiling() -> None:
    config = PathMtuConfig(interface=1472, peer_limit=1452)
    assert (config.most, config.limited_by) == (1452, "peer")
    config = PathMtuConfig(interface=1472, peer_limit=1452, ceiling=1400)
    assert (config.most, config.limited_by) == (1400, "ceiling")
    config = PathMtuConfig(interface=1472)
    assert (config.most, config.limited_by) == (1472, "interface")


def test_dpl_25_the_base_is_never_above_the_most() -> None:
    assert PathMtuConfig(interface=1300, floor=1400).base == 1300
    assert PathMtuConfig(interface=500).most == 1200


def test_a_told_size_is_where_it_begins_within_what_quic_and_the_peer_allow() -> None:
    assert PathMtuConfig().start == 1200
    assert PathMtuConfig(told=1422).start == 1422
    assert PathMtuConfig(told=1472, peer_limit=1400).start == 1400
    assert PathMtuConfig(told=900).start == 1200


def test_a_floor_raises_the_base() -> None:
    assert PathMtuConfig(interface=1472, floor=1352).base == 1352
    assert PathMtuConfig(interface=1472, floor=800).base == 1200


def test_dpl_20_dpl_21_dpl_23_timers_and_counts_are_those_of_the_rfc() -> None:
    assert (PROBE_TIMER, PMTU_RAISE_TIMER, MAX_PROBES) == (15.0, 600.0, 3)
