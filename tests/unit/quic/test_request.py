"""The table of requests."""

from __future__ import annotations

from qtunnel.quic.request import Request, Requests


def test_requests_are_let_go_only_when_quic_has_forgotten_them() -> None:
    discarded: set[int] = set()
    requests = Requests(discarded.__contains__)
    requests.add(Request(0))
    requests.add(Request(4))
    discarded.add(0)
    assert requests.get(0) is not None
    requests.add(Request(8))
    assert requests.get(0) is None
    assert [request.stream_id for request in requests] == [4, 8]
    requests.clear()
    assert requests.get(4) is None


def test_packet_streams_are_those_registered_accepted_and_open() -> None:
    requests = Requests(lambda _stream_id: False)
    ready = Request(0, is_accepted=True, prefix=b"\x00\x00")
    requests.add(ready)
    requests.add(Request(4, is_accepted=True))
    requests.add(Request(8, prefix=b"\x02\x00"))
    requests.add(Request(12, is_accepted=True, prefix=b"\x03\x00", receive_is_open=False))
    assert requests.packet_streams() == [ready]


def test_a_request_is_open_while_either_direction_is() -> None:
    request = Request(0)
    assert request.is_open
    request.send_is_open = False
    assert request.is_open
    request.receive_is_open = False
    assert not request.is_open
