"""What an endpoint reads and writes before there is a connection; aioquic is the reference."""

from __future__ import annotations

import random

import pytest
from aioquic.buffer import Buffer
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicPacketType, encode_quic_retry, get_retry_integrity_tag, pull_quic_header
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.quic.h3 import HttpConnection
from qtunnel.quic.long_header import (
    InitialHeader,
    encode_initial_close,
    encode_retry,
    encode_version_negotiation,
    parse_initial,
)
from tests.sim.quic_pair import SERVER_ADDRESS, client_settings

cids = st.binary(max_size=20)


def first_flight() -> bytes:
    return HttpConnection.client(client_settings(), SERVER_ADDRESS, 1.0).datagrams_to_send(1.0)[0].data


@given(st.binary(max_size=100))
def test_any_bytes_are_a_header_or_none(data: bytes) -> None:
    header = parse_initial(data)
    assert header is None or header.destination_cid in data


@given(destination=cids, source=cids, token=st.binary(max_size=100), rest=st.binary(min_size=30, max_size=40))
def test_an_initial_is_read_as_aioquic_reads_it(
    destination: bytes, source: bytes, token: bytes, rest: bytes
) -> None:
    length = len(rest).to_bytes(1, "big")
    data = b"\xc3\x00\x00\x00\x01%c%b%c%b" % (len(destination), destination, len(source), source)
    data += (0x4000 | len(token)).to_bytes(2, "big") + token + length + rest
    theirs = pull_quic_header(Buffer(data=data), host_cid_length=4)
    ours = parse_initial(data)
    assert ours is not None
    assert theirs.packet_type is QuicPacketType.INITIAL
    assert (ours.destination_cid, ours.source_cid, ours.token) == (
        theirs.destination_cid,
        theirs.source_cid,
        theirs.token,
    )


@pytest.mark.parametrize("first", [0xD0, 0xE0, 0xF0])
def test_other_long_headers_are_no_initials(first: int) -> None:
    data = bytes([first]) + first_flight()[1:]
    header = parse_initial(data)
    assert header is not None
    assert not header.is_initial


def test_every_truncation_is_a_header_or_none() -> None:
    data = first_flight()
    for size in range(60):
        header = parse_initial(data[:size])
        assert header is None or size > 20


def test_of_other_versions_only_the_invariant_fields_are_read() -> None:
    data = b"\x80\x0a\x0a\x0a\x0a\x1e" + b"d" * 30 + b"\x19" + b"s" * 25 + b"whatever"
    assert parse_initial(data) == InitialHeader(0x0A0A0A0A, b"d" * 30, b"s" * 25, b"", False)


def test_a_retry_is_as_aioquic_makes_it() -> None:
    ours = encode_retry(source_cid=b"retrycid", destination_cid=b"clnt", original_cid=b"original", token=b"t" * 50)
    theirs = encode_quic_retry(
        version=1,
        source_cid=b"retrycid",
        destination_cid=b"clnt",
        original_destination_cid=b"original",
        retry_token=b"t" * 50,
    )
    assert ours == theirs
    assert ours[-16:] == get_retry_integrity_tag(ours[:-16], b"original", version=1)


def test_a_version_negotiation_is_read_by_aioquic() -> None:
    data = encode_version_negotiation(
        source_cid=b"server-id", destination_cid=b"clnt", versions=(1,), random_bytes=random.Random(1).randbytes
    )
    header = pull_quic_header(Buffer(data=data), host_cid_length=4)
    assert header.packet_type is QuicPacketType.VERSION_NEGOTIATION
    assert (header.source_cid, header.destination_cid, header.supported_versions) == (
        b"server-id",
        b"clnt",
        [1],
    )


def test_a_refusal_opens_with_the_initial_keys_of_the_connection_id() -> None:
    header = InitialHeader(1, b"original", b"clnt", b"", True)
    data = encode_initial_close(header, 0x0B)
    crypto = CryptoPair()
    crypto.setup_initial(cid=b"original", is_client=True, version=1)
    buf = Buffer(data=data)
    pull_quic_header(buf, host_cid_length=4)
    _, payload, _ = crypto.decrypt_packet(data, buf.tell(), 0)
    assert payload[:3] == b"\x1c\x0b\x00"
