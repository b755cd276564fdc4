"""The numbers of a connection."""

from __future__ import annotations

from tests.sim.quic_pair import QuicPair, client_settings, server_settings


def test_numbers_follow_what_happened() -> None:
    pair = QuicPair(client=client_settings(max_udp_payload=1400), server=server_settings(max_udp_payload=1400))
    stream_id = pair.open_tunnel()
    before = pair.client.stats()
    pair.client.send_packets(stream_id, [bytes(1000)] * 10, pair.now)
    assert pair.client.stats().queued == 10
    pair.run(0.5)
    after = pair.client.stats()
    assert after.queued == 0
    assert after.datagrams_sent - before.datagrams_sent >= 10
    assert after.bytes_sent - before.bytes_sent >= 10_000
    assert after.bytes_received > before.bytes_received
    assert after.smoothed_rtt > 0.0199
    assert after.max_udp_payload == 1400
    assert after.congestion_window > 0
    assert after.bytes_in_flight == after.lost == 0
    sent = [data for _, to_server, data in pair.wire if to_server]
    assert (after.datagrams_sent, after.bytes_sent) == (len(sent), sum(map(len, sent)))


def test_lost_packets_are_counted() -> None:
    losing = [False]
    pair = QuicPair(lose=lambda _data, to_server: to_server and losing[0])
    stream_id = pair.open_tunnel()
    pair.run(0.5)
    losing[0] = True
    pair.client.send_packets(stream_id, [b"lost"], pair.now)
    pair.flush()
    losing[0] = False
    for _ in range(5):
        pair.client.send_packets(stream_id, [b"kept"], pair.now)
        pair.run(0.02)
    pair.run(1)
    assert pair.client.stats().lost == 1
