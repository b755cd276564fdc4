import pytest

from qtunnel.pmtud.sizes import MIN_UDP_PAYLOAD, inner_mtu, link_mtu, udp_payload


@pytest.mark.parametrize(
    ("mtu", "version", "payload", "inner"),
    [
        (1500, 4, 1472, 1446),
        (1500, 6, 1452, 1426),
        (1492, 4, 1464, 1438),
        (1400, 6, 1352, 1326),
        (1340, 4, 1312, 1286),
    ],
)
def test_qdg_10_each_header_is_counted_once(mtu: int, version: int, payload: int, inner: int) -> None:
    assert udp_payload(mtu, version) == payload
    assert inner_mtu(payload) == inner
    assert link_mtu(payload, version) == mtu


def test_cip_71_an_ipv6_packet_of_1280_bytes_needs_a_udp_payload_of_1306() -> None:
    assert inner_mtu(1306) == 1280
    assert inner_mtu(1305) < 1280


def test_a_peer_with_longer_connection_ids_leaves_less_room() -> None:
    assert inner_mtu(1472, connection_id=8) == inner_mtu(1472) - 4


def test_the_least_quic_path_is_too_small_for_ipv6_inside() -> None:
    assert inner_mtu(MIN_UDP_PAYLOAD) == 1174
