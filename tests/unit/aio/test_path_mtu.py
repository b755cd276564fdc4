"""From the configuration to the transport: told, found, limited."""

from __future__ import annotations

import pytest

from qtunnel.aio.path_mtu import path_mtu_settings, told_udp_payload
from qtunnel.config import BlackHoles, LabConfig, PathMtuSearch, QuicConfig
from qtunnel.errors import SystemSetupError
from qtunnel.quic.settings import PathMtuSettings


def test_a_told_size_is_not_probed() -> None:
    assert path_mtu_settings(QuicConfig(path_mtu=1450), LabConfig(), 1500) is None
    assert told_udp_payload(QuicConfig(path_mtu=1450), 1500, 4, "the path") == 1422
    assert told_udp_payload(QuicConfig(), 1500, 6, "the path") == 1452


def test_what_was_said_is_passed_on() -> None:
    assert path_mtu_settings(QuicConfig(), LabConfig(), 9000) == PathMtuSettings(interface_mtu=9000)
    quic = QuicConfig(min_path_mtu=1300, max_path_mtu=1400, path_mtu_search=PathMtuSearch.SEQUENTIAL)
    settings = path_mtu_settings(quic, LabConfig(black_holes=BlackHoles.LOSS_COUNT), 1500)
    assert settings is not None
    assert (settings.floor, settings.ceiling, settings.search) == (1300, 1400, "sequential")
    assert settings.black_hole == "loss_count"


def test_less_than_quic_needs_is_refused_with_what_to_do() -> None:
    with pytest.raises(SystemSetupError, match="the path carries IP packets of 1240 bytes, and QUIC needs 1248"):
        told_udp_payload(QuicConfig(), 1240, 6, "the path")
