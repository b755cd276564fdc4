"""RFC 8441 and 9220 on the connection: the setting, and when `:protocol` may be used."""

from __future__ import annotations

import pytest

from qtunnel.errors import LocalProtocolError
from tests.sim.quic_pair import GET, REQUEST, RESPONSE, QuicPair
from tests.sim.raw_peer import DATA, RawClient, RawServer, frame, headers_frame, settings_frame, varint

H3_FRAME_UNEXPECTED = 0x105
H3_SETTINGS_ERROR = 0x109
H3_REQUEST_CANCELLED = 0x10C


@pytest.mark.parametrize("value", [2, 3, (1 << 62) - 1])
@pytest.mark.parametrize("kind", [RawClient, RawServer])
def test_exc_01_the_setting_is_0_or_1(kind: type[RawClient | RawServer], value: int) -> None:
    peer = kind()
    peer.connect()
    peer.open_http({0x08: value})
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_SETTINGS_ERROR


def test_exc_01_the_setting_cannot_be_taken_back() -> None:
    peer = RawServer()
    peer.connect()
    peer.open_http()
    peer.stream(3, settings_frame({0x08: 0}))
    peer.exchange()
    assert peer.closed is not None
    assert peer.closed.error_code == H3_FRAME_UNEXPECTED


def test_exc_01_the_server_sends_the_setting_as_1() -> None:
    peer = RawClient()
    peer.connect()
    peer.exchange()
    assert varint(0x08) + varint(1) in peer.streams_received()[3]


def test_exc_02_no_extended_connect_before_the_servers_settings() -> None:
    peer = RawServer()
    peer.connect()
    with pytest.raises(LocalProtocolError, match="extended CONNECT"):
        peer.subject.send_request(REQUEST)
    peer.open_http()
    peer.exchange()
    assert peer.subject.send_request(REQUEST) == 0


@pytest.mark.parametrize("settings", [{}, {0x08: 0}])
def test_exc_02_no_extended_connect_if_the_server_does_not_enable_it(settings: dict[int, int]) -> None:
    peer = RawServer()
    peer.connect()
    peer.open_http(settings)
    peer.exchange()
    assert [event.extended_connect for event in peer.of("SettingsReceived")] == [False]
    with pytest.raises(LocalProtocolError, match="extended CONNECT"):
        peer.subject.send_request(REQUEST)
    assert peer.subject.send_request(GET, end=True) == 0


@pytest.mark.parametrize("settings", [{}, {0x08: 0}, {0x08: 1}])
def test_exc_03_the_clients_setting_changes_nothing_for_the_server(settings: dict[int, int]) -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http(settings | {0x33: 1})
    peer.stream(0, headers_frame(REQUEST))
    peer.exchange()
    assert [event.headers for event in peer.of("HeadersReceived")] == [REQUEST]
    assert peer.connection is not None
    peer.connection.send_headers(0, RESPONSE)
    peer.exchange()
    assert peer.closed is None


def test_exc_08_the_end_of_the_stream_is_orderly() -> None:
    pair = QuicPair()
    stream_id = pair.open_tunnel()
    pair.client.send_data(stream_id, b"last", end=True)
    pair.run(0.5)
    got = pair.of(pair.server_events, "DataReceived")
    assert b"".join(event.data for event in got) == b"last"
    assert got[-1].end
    assert not pair.of(pair.server_events, "StreamReset")


def test_exc_08_an_abrupt_end_is_request_cancelled() -> None:
    peer = RawClient()
    peer.connect()
    peer.open_http()
    peer.stream(0, headers_frame(REQUEST) + frame(DATA, b"x"))
    peer.exchange()
    assert peer.connection is not None
    peer.connection.send_headers(0, RESPONSE)
    peer.exchange()
    peer.quic.reset_stream(0, H3_REQUEST_CANCELLED)
    peer.exchange()
    assert [event.error_code for event in peer.of("StreamReset")] == [H3_REQUEST_CANCELLED]
    resets = [event for event in peer.quic_events if type(event).__name__ == "StreamReset"]
    assert [event.error_code for event in resets] == [H3_REQUEST_CANCELLED]
