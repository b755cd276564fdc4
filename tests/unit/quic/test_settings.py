"""Settings are checked when they are made."""

from __future__ import annotations

import pytest

from qtunnel.errors import ConfigError
from tests.sim.quic_pair import client_settings, server_settings


@pytest.mark.parametrize("size", [0, 1199, 65528])
def test_a_udp_payload_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="max_udp_payload"):
        client_settings(max_udp_payload=size)
    with pytest.raises(ConfigError, match="max_udp_payload"):
        server_settings(max_udp_payload=size)


def test_a_queue_has_room_for_a_packet() -> None:
    with pytest.raises(ConfigError, match="queue_packets"):
        client_settings(queue_packets=0)


@pytest.mark.parametrize("value", [-1, 64])
def test_mpq_46_the_first_limit_on_path_ids_is_small(value: int) -> None:
    assert client_settings(initial_max_path_id=63).initial_max_path_id == 63
    with pytest.raises(ConfigError, match="initial_max_path_id"):
        client_settings(initial_max_path_id=value)


@pytest.mark.parametrize(
    "change",
    [
        {"retry_key": b"short"},
        {"stateless_reset_key": b"short"},
        {"max_sessions": 0},
        {"max_handshakes": 0},
    ],
)
def test_an_endpoints_keys_and_bounds_are_checked(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        server_settings(**change)


def test_secrets_do_not_show_in_the_text_of_settings() -> None:
    shown = repr(server_settings(retry_key=b"0123456789abcdef"))
    assert "0123456789abcdef" not in shown
    assert "PRIVATE KEY" not in shown
