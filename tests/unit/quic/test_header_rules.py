"""Which pseudo-headers a request has."""

from __future__ import annotations

import pytest
from aioquic.h3.connection import MessageError

from qtunnel.quic.header_rules import check_request, is_connect, is_extended_connect, is_success
from tests.sim.quic_pair import GET, REQUEST, RESPONSE

PLAIN_CONNECT = [(b":method", b"CONNECT"), (b":authority", b"host.test:22")]


def test_good_requests_pass() -> None:
    for headers in (REQUEST, GET, PLAIN_CONNECT):
        check_request(headers)


def test_bad_requests_are_message_errors() -> None:
    for headers in (
        [*GET, (b":protocol", b"connect-ip")],
        [header for header in REQUEST if header[0] != b":path"],
        [header for header in GET if header[0] != b":scheme"],
        [*PLAIN_CONNECT, (b":path", b"/")],
    ):
        with pytest.raises(MessageError):
            check_request(headers)


def test_kinds_of_requests_and_responses_are_told_apart() -> None:
    assert [is_connect(headers) for headers in (REQUEST, PLAIN_CONNECT, GET)] == [True, True, False]
    assert [is_extended_connect(headers) for headers in (REQUEST, PLAIN_CONNECT, GET)] == [True, False, False]
    assert is_success(RESPONSE)
    assert not is_success([(b":status", b"403")])
    assert not is_success([(b":status", b"103")])
