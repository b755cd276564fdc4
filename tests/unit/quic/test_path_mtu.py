"""Path MTU discovery driving real packets of the plane: what is sent, what is told, what is thrown away."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from qtunnel.pmtud.states import State
from qtunnel.quic.events import PacketSizeChanged, PacketsReturned
from qtunnel.quic.packet_plane import PacketPlane
from qtunnel.quic.path_mtu import PathMtu, path_mtu_config
from qtunnel.quic.plane_connection import PlaneConnection
from qtunnel.quic.settings import PathMtuSettings
from qtunnel.recovery.sent_packets import MTU_PROBE
from tests.sim.quic_pair import QuicPair
from tests.unit.quic.planes import plane_of, received, settings


def make_pair(size_limit: int = 1472, **more: object) -> QuicPair:
    """Return a pair of which datagrams from the client larger than size_limit are lost."""
    path_mtu = PathMtuSettings(**more)  # type: ignore[arg-type]  # its fields
    pair = QuicPair(**settings(path_mtu=path_mtu))  # type: ignore[arg-type]
    narrow(pair, size_limit)
    return pair


def narrow(pair: QuicPair, size_limit: int) -> None:
    pair.lose = lambda data, to_server: to_server and len(data) > size_limit


def path_mtu_of(pair: QuicPair) -> PathMtu:
    path_mtu = plane_of(pair.client).path_mtu
    assert path_mtu is not None
    return path_mtu


def plane_or_none(pair: QuicPair) -> PacketPlane | None:
    return cast(PlaneConnection, pair.client.quic).plane


def test_limits_become_udp_payloads_of_the_ip_version() -> None:
    said = PathMtuSettings(interface_mtu=9000, ceiling=1500, floor=1300, remembered=1450)
    four = path_mtu_config(said, is_ipv6=False, peer_limit=65527)
    six = path_mtu_config(said, is_ipv6=True, peer_limit=1400)
    assert (four.interface, four.ceiling, four.floor, four.remembered) == (8972, 1472, 1272, 1422)
    assert (six.interface, six.ceiling, six.floor, six.remembered) == (8952, 1452, 1252, 1402)
    assert (four.most, six.most, six.limited_by) == (1472, 1400, "peer")
    assert replace(four, ceiling=None, floor=None).limited_by == "interface"


def test_the_size_is_found_and_used_and_the_tunnel_is_told() -> None:
    pair = make_pair(1433)
    stream_id = pair.open_tunnel()
    pair.run(3)
    assert path_mtu_of(pair).discovery.size == 1433
    assert path_mtu_of(pair).discovery.state is State.SEARCH_COMPLETE
    assert pair.client.max_packet_size(stream_id) == 1433 - 26
    assert any(isinstance(event, PacketSizeChanged) for event in pair.client_events)


def test_dpl_probes_leave_alone_and_are_lost_without_a_congestion_signal() -> None:
    pair = make_pair(1300)
    pair.open_tunnel()
    pair.run(3)
    path_mtu, recovery = path_mtu_of(pair), plane_of(pair.client).path.recovery
    assert path_mtu.discovery.size == 1300
    assert path_mtu.discovery.probes_lost > 0
    assert plane_of(pair.client).packets_lost == 0
    assert recovery.congestion.ssthresh == float("inf")
    assert recovery.pto_count == 0
    large = [transmit for to_server, transmit in pair.transmits if to_server and len(transmit.data) > 1300]
    assert len(large) >= path_mtu.discovery.probes_lost
    assert all(transmit.segment_size is None for transmit in large)


def test_on_conviction_all_of_the_old_size_is_forgotten_and_what_waits_comes_back() -> None:
    pair = make_pair()
    stream_id = pair.open_tunnel()
    pair.run(3)
    plane, discovery = plane_of(pair.client), path_mtu_of(pair).discovery
    full = pair.client.max_packet_size(stream_id)
    assert full == 1446
    narrow(pair, 1372)
    content = b"stream data that must arrive" * 500
    pair.client.send_data(stream_id, content)
    for _ in range(300):
        if discovery.size < 1472:
            break
        pair.client.send_packets(stream_id, [bytes(full)] * 5, pair.now)
        pair.run(0.01)
    assert discovery.size == 1372
    assert plane.packets_discarded > 0
    runs = plane.path.recovery._flight.sent.runs()
    assert all(run.size <= 1372 for run in runs if not run.flags & MTU_PROBE)
    pair.client.send_packets(stream_id, [b"ok" * 600], pair.now)
    pair.run(3)
    assert pair.client.max_packet_size(stream_id) == 1372 - 26
    returned = [event for event in pair.client_events if isinstance(event, PacketsReturned)]
    assert all(len(packet) == full for event in returned for packet in event.packets)
    assert received(pair.server_events)[-1] == b"ok" * 600


@pytest.mark.parametrize("size", [1472, 1400])
def test_a_size_in_use_that_the_own_kernel_refuses_is_asked_for_anew(size: int) -> None:
    pair = make_pair()
    pair.open_tunnel()
    pair.run(3)
    pair.client.on_refused(size, pair.now)
    assert path_mtu_of(pair).discovery.is_suspicious


def test_a_probe_that_the_own_kernel_refuses_never_left() -> None:
    pair = make_pair()
    pair.run_until(lambda: plane_or_none(pair) is not None and path_mtu_of(pair).discovery.probes_sent)
    recovery = plane_of(pair.client).path.recovery
    before = recovery.bytes_in_flight
    pair.client.on_refused(1472, pair.now)
    assert recovery.bytes_in_flight == before - 1472
    assert path_mtu_of(pair).discovery.size < 1472


def test_a_message_from_a_router_is_only_a_hint() -> None:
    pair = make_pair()
    pair.open_tunnel()
    pair.run(3)
    path_mtu = path_mtu_of(pair)
    path_mtu.on_ptb(1300, pair.now)
    assert path_mtu.discovery.size == 1472
    pair.run(3)
    assert path_mtu.discovery.size == 1472
    assert not path_mtu.discovery.is_suspicious


def test_a_message_about_a_packet_that_we_never_sent_is_counted_and_ignored() -> None:
    pair = make_pair()
    pair.open_tunnel()
    pair.run(3)
    discovery, cid = path_mtu_of(pair).discovery, plane_of(pair.client).core.peer_cid
    for quoted in (b"", b"@", b"@" + cid[::-1] + b"xx", b"@" + cid[:3]):
        pair.client.on_packet_too_big(1300, quoted, pair.now)
    assert discovery.hints_ignored == 4
    assert not discovery.is_suspicious
    pair.client.on_packet_too_big(1300, b"@" + cid + b"xx", pair.now)
    assert discovery.is_suspicious


def test_a_stall_of_ours_excuses_what_was_lost_in_it() -> None:
    pair = make_pair()
    stream_id = pair.open_tunnel()
    pair.run(3)
    pair.client.send_packets(stream_id, [bytes(1446)] * 5, pair.now)
    pair.client.datagrams_to_send(pair.now)
    before = plane_of(pair.client).path.recovery.get_timer()
    pair.client.on_stall(0.5, pair.now)
    after = plane_of(pair.client).path.recovery.get_timer()
    assert before is not None
    assert after == pytest.approx(before + 0.5)
